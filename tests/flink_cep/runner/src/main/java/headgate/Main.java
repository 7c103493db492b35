package headgate;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.cep.CEP;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** Runs the cases on a local Flink, by the public API alone. Arguments: file of cases, file of results. */
public final class Main {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final OutputTag<Event> LATE = new OutputTag<>("late") {};
    /** Cases that share a job. To start and stop a Flink takes a second; each case in a job takes two threads. */
    private static final int CASES_PER_JOB = 25;

    private Main() {}

    public static void main(String[] args) throws Exception {
        List<Case> cases = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(args[0]), StandardCharsets.UTF_8)) {
            cases.add(new Case((ObjectNode) JSON.readTree(line)));
        }
        List<Case> accepted = cases.stream().filter(Main::isAccepted).toList();
        for (int from = 0; from < accepted.size(); from += CASES_PER_JOB) {
            judge(accepted.subList(from, Math.min(from + CASES_PER_JOB, accepted.size())));
        }
        try (PrintWriter out = new PrintWriter(args[1], StandardCharsets.UTF_8)) {
            cases.forEach(each -> out.println(each.tree));
        }
    }

    /** Whether Flink builds the pattern's operator; if not, the case gets the reason as its result. */
    private static boolean isAccepted(Case each) {
        try {
            results(StreamExecutionEnvironment.createLocalEnvironment(1), each);
            return true;
        } catch (RuntimeException refusal) { // MalformedPatternException and others: Flink has no common type for them
            each.tree.set("flink", JSON.createObjectNode().put("refused", String.valueOf(refusal.getMessage())));
            return false;
        }
    }

    /** Gives each case its result. Where a job fails, its halves run by themselves, so the failure stays with its case. */
    private static void judge(List<Case> cases) throws Exception {
        Map<String, ObjectNode> results = new LinkedHashMap<>();
        for (Case each : cases) {
            ObjectNode result = JSON.createObjectNode();
            List.of("matches", "timeouts", "late").forEach(result::putArray);
            results.put(each.id(), result);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
        DataStream<String> all = null;
        for (Case each : cases) {
            DataStream<String> one = results(env, each);
            all = all == null ? one : all.union(one);
        }
        try (CloseableIterator<String> rows = all.executeAndCollect()) {
            while (rows.hasNext()) {
                JsonNode row = JSON.readTree(rows.next());
                results.get(row.get("case").asText()).withArray(row.get("list").asText()).add(row.get("output"));
            }
        } catch (Exception failure) { // Flink wraps what a task throws in several layers
            if (cases.size() == 1) {
                cases.get(0).tree.set("flink", JSON.createObjectNode().put("failed", rootMessage(failure)));
                return;
            }
            judge(cases.subList(0, cases.size() / 2));
            judge(cases.subList(cases.size() / 2, cases.size()));
            return;
        }
        cases.forEach(each -> each.tree.set("flink", results.get(each.id())));
    }

    private static String rootMessage(Throwable failure) {
        while (failure.getCause() != null) {
            failure = failure.getCause();
        }
        return String.valueOf(failure.getMessage());
    }

    private static DataStream<String> results(StreamExecutionEnvironment env, Case each) {
        Long disorderMs = each.disorderMs();
        DataStream<Event> timed = env.fromData(each.events()).assignTimestampsAndWatermarks(
                WatermarkStrategy.<Event>forGenerator(context -> new WatermarkAfterEachEvent(disorderMs))
                        .withTimestampAssigner((event, before) -> event.timeMs));
        SingleOutputStreamOperator<String> matches =
                CEP.pattern(timed.keyBy(event -> event.key), PatternReader.read(each.tree))
                        .inEventTime()
                        .sideOutputLateData(LATE)
                        .process(new MatchWriter());
        DataStream<String> late = matches.getSideOutput(LATE).map(event -> String.valueOf(event.id)).returns(Types.STRING);
        TreeSet<Long> watermarks = each.watermarks();
        return matches.process(new Label(each.id(), "matches", watermarks))
                .union(matches.getSideOutput(MatchWriter.TIMEOUTS).process(new Label(each.id(), "timeouts", watermarks)))
                .union(late.process(new Label(each.id(), "late", watermarks)));
    }

    /** A case of the corpus: JSON that gets its result. */
    private record Case(ObjectNode tree) {
        String id() {
            return tree.get("id").asText();
        }

        List<Event> events() {
            List<Event> events = new ArrayList<>();
            tree.get("events").forEach(columns -> events.add(Event.of(columns)));
            return events;
        }

        /** The disorder of the events; null: no watermark before the end. */
        Long disorderMs() {
            JsonNode node = tree.get("disorder_ms");
            return node.isNull() ? null : node.asLong();
        }

        /** The watermarks that {@link WatermarkAfterEachEvent} emits. */
        TreeSet<Long> watermarks() {
            TreeSet<Long> watermarks = new TreeSet<>();
            if (disorderMs() != null) {
                long highestMs = Long.MIN_VALUE;
                for (Event event : events()) {
                    highestMs = Math.max(highestMs, event.timeMs);
                    watermarks.add(highestMs - disorderMs() - 1);
                }
            }
            return watermarks;
        }
    }

    /** Adds to a row its case, its list, and the watermark that caused it (null: the end of time). */
    private static final class Label extends ProcessFunction<String, String> {
        private final String id;
        private final String list;
        private final TreeSet<Long> watermarks;

        Label(String id, String list, TreeSet<Long> watermarks) {
            this.id = id;
            this.list = list;
            this.watermarks = watermarks;
        }

        @Override
        public void processElement(String output, Context context, Collector<String> out) throws Exception {
            JsonNode tree = JSON.readTree(output);
            if (tree instanceof ObjectNode match) {
                // An operator hands a watermark on after all that it caused, so the one that caused this row is the next.
                match.put("watermark", watermarks.higher(context.timerService().currentWatermark()));
            }
            out.collect(JSON.createObjectNode().put("case", id).put("list", list).set("output", tree).toString());
        }
    }
}
