package headgate;

import java.util.List;
import java.util.Map;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.functions.TimedOutPartialMatchHandler;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** Writes each match, and each partial match that timed out, as JSON. */
final class MatchWriter extends PatternProcessFunction<Event, String> implements TimedOutPartialMatchHandler<Event> {
    static final OutputTag<String> TIMEOUTS = new OutputTag<>("timeouts") {};

    @Override
    public void processMatch(Map<String, List<Event>> match, Context context, Collector<String> out) {
        out.collect(describe(match).toString());
    }

    @Override
    public void processTimedOutMatch(Map<String, List<Event>> match, Context context) {
        context.output(TIMEOUTS, describe(match).put("timestamp", context.timestamp()).toString());
    }

    private static ObjectNode describe(Map<String, List<Event>> match) {
        ObjectNode result = Main.JSON.createObjectNode();
        result.putNull("key");
        ObjectNode steps = result.putObject("steps");
        match.forEach((name, events) -> {
            ArrayNode ids = steps.putArray(name);
            for (Event event : events) {
                result.put("key", event.key);
                ids.add(event.id);
            }
        });
        return result;
    }
}
