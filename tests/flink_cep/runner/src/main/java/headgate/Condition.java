package headgate;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** A condition of the corpus as one of Flink. It holds JSON text, since Flink serialises it. */
public class Condition extends IterativeCondition<Event> {
    private final String text;
    private transient JsonNode tree;

    Condition(JsonNode tree) {
        this.text = tree.toString();
    }

    @Override
    public boolean filter(Event event, Context<Event> matched) throws Exception {
        if (tree == null) {
            tree = Main.JSON.readTree(text);
        }
        return holds(tree, event, matched);
    }

    private static boolean holds(JsonNode node, Event event, Context<Event> matched) throws Exception {
        if (node.has("and")) {
            for (JsonNode part : node.get("and")) {
                if (!holds(part, event, matched)) {
                    return false;
                }
            }
            return true;
        }
        if (node.has("or")) {
            for (JsonNode part : node.get("or")) {
                if (holds(part, event, matched)) {
                    return true;
                }
            }
            return false;
        }
        if (node.has("not")) {
            return !holds(node.get("not"), event, matched);
        }
        return compare(node, event, matched);
    }

    private static boolean compare(JsonNode node, Event event, Context<Event> matched) throws Exception {
        Comparable<?> left = side(node, event, matched);
        Comparable<?> right = node.has("than") ? side(node.get("than"), event, matched) : constant(node.get("value"));
        if (left == null || right == null) {
            return node.path("if_none").asBoolean(false);
        }
        int order = left instanceof String text ? text.compareTo((String) right) : Long.compare((Long) left, (Long) right);
        String op = node.get("op").asText();
        return switch (op) {
            case "=" -> order == 0;
            case "!=" -> order != 0;
            case "<" -> order < 0;
            case "<=" -> order <= 0;
            case ">" -> order > 0;
            case ">=" -> order >= 0;
            default -> throw new IllegalArgumentException("no comparison is named " + op);
        };
    }

    private static Comparable<?> constant(JsonNode value) {
        return value.isTextual() ? (Comparable<?>) value.asText() : (Comparable<?>) value.asLong();
    }

    /** One side of a comparison; null where `first` or `last` finds no event. */
    private static Comparable<?> side(JsonNode node, Event event, Context<Event> matched) throws Exception {
        if (node.has("field")) {
            return event.field(node.get("field").asText());
        }
        for (String function : List.of("first", "last", "sum", "count")) {
            if (node.has(function)) {
                String[] stepAndField = node.get(function).asText().split("\\.");
                List<Event> events = new ArrayList<>();
                matched.getEventsForPattern(stepAndField[0]).forEach(events::add);
                return switch (function) {
                    case "count" -> (long) events.size();
                    case "sum" -> events.stream().mapToLong(e -> (Long) e.field(stepAndField[1])).sum();
                    case "first" -> events.isEmpty() ? null : events.get(0).field(stepAndField[1]);
                    default -> events.isEmpty() ? null : events.get(events.size() - 1).field(stepAndField[1]);
                };
            }
        }
        throw new IllegalArgumentException("no side of a comparison: " + node);
    }
}
