package headgate;

import java.time.Duration;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.nfa.aftermatch.SkipToFirstStrategy;
import org.apache.flink.cep.nfa.aftermatch.SkipToLastStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** Makes Flink's pattern of a case, with the calls that a user of Flink writes. Flink's refusals pass through. */
final class PatternReader {
    private PatternReader() {}

    static Pattern<Event, Event> read(JsonNode testCase) {
        Pattern<Event, Event> pattern = sequence(testCase.get("pattern"), skip(testCase.get("skip")));
        JsonNode within = testCase.get("within_ms");
        return within.isNull() ? pattern : pattern.within(Duration.ofMillis(within.asLong()));
    }

    private static AfterMatchSkipStrategy skip(JsonNode node) {
        String strategy = node.get("strategy").asText();
        boolean throwsOnMiss = node.has("on_miss");
        switch (strategy) {
            case "no_skip":
                return AfterMatchSkipStrategy.noSkip();
            case "skip_to_next":
                return AfterMatchSkipStrategy.skipToNext();
            case "skip_past_last_event":
                return AfterMatchSkipStrategy.skipPastLastEvent();
            case "skip_to_first":
                SkipToFirstStrategy first = AfterMatchSkipStrategy.skipToFirst(node.get("step").asText());
                return throwsOnMiss ? first.throwExceptionOnMiss() : first;
            case "skip_to_last":
                SkipToLastStrategy last = AfterMatchSkipStrategy.skipToLast(node.get("step").asText());
                return throwsOnMiss ? last.throwExceptionOnMiss() : last;
            default:
                throw new IllegalArgumentException("no skip strategy is named " + strategy);
        }
    }

    private static Pattern<Event, Event> sequence(JsonNode steps, AfterMatchSkipStrategy skip) {
        Pattern<Event, Event> pattern = null;
        for (JsonNode step : steps) {
            pattern = step.has("group") ? group(pattern, step, skip) : single(pattern, step, skip);
            if (step.has("where")) {
                pattern = pattern.where(new Condition(step.get("where")));
            }
            if (step.has("quantifier")) {
                pattern = quantifier(pattern, step.get("quantifier"));
            }
            if (step.has("until")) {
                pattern = pattern.until(new Condition(step.get("until")));
            }
            if (step.has("within_previous_ms")) {
                Duration time = Duration.ofMillis(step.get("within_previous_ms").asLong());
                pattern = pattern.within(time, WithinType.PREVIOUS_AND_CURRENT);
            }
        }
        return pattern;
    }

    private static Pattern<Event, Event> single(Pattern<Event, Event> before, JsonNode step, AfterMatchSkipStrategy skip) {
        String name = step.get("name").asText();
        if (before == null) {
            return Pattern.begin(name, skip);
        }
        String contiguity = step.get("contiguity").asText();
        return switch (contiguity) {
            case "next" -> before.next(name);
            case "followed_by" -> before.followedBy(name);
            case "followed_by_any" -> before.followedByAny(name);
            case "not_next" -> before.notNext(name);
            case "not_followed_by" -> before.notFollowedBy(name);
            default -> throw new IllegalArgumentException("no contiguity of a step is named " + contiguity);
        };
    }

    private static Pattern<Event, Event> group(Pattern<Event, Event> before, JsonNode step, AfterMatchSkipStrategy skip) {
        Pattern<Event, Event> steps = sequence(step.get("group"), skip);
        if (before == null) {
            return Pattern.begin(steps, skip);
        }
        String contiguity = step.get("contiguity").asText();
        return switch (contiguity) {
            case "next" -> before.next(steps);
            case "followed_by" -> before.followedBy(steps);
            case "followed_by_any" -> before.followedByAny(steps);
            default -> throw new IllegalArgumentException("no contiguity of a group is named " + contiguity);
        };
    }

    private static Pattern<Event, Event> quantifier(Pattern<Event, Event> pattern, JsonNode node) {
        int min = node.get("min").asInt();
        boolean unbounded = node.get("max").isNull();
        int max = unbounded ? 0 : node.get("max").asInt();
        Duration between = node.has("within_ms") ? Duration.ofMillis(node.get("within_ms").asLong()) : null;
        if (unbounded) {
            pattern = min == 1 ? pattern.oneOrMore(between) : pattern.timesOrMore(min, between);
        } else if (min == max) {
            pattern = min == 1 ? pattern : pattern.times(min, between);
        } else {
            pattern = pattern.times(min, max, between);
        }
        if (node.get("optional").asBoolean()) {
            pattern = pattern.optional();
        }
        if (node.get("greedy").asBoolean()) {
            pattern = pattern.greedy();
        }
        String inner = node.get("inner").asText();
        return switch (inner) {
            case "relaxed" -> pattern;
            case "consecutive" -> pattern.consecutive();
            case "allow_combinations" -> pattern.allowCombinations();
            default -> throw new IllegalArgumentException("no contiguity inside a loop is named " + inner);
        };
    }
}
