package headgate;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** An event of a case, as a POJO of Flink: public fields and a constructor without arguments. */
public class Event {
    public int id;
    public String key;
    public long timeMs;
    public String kind;
    public long v;

    /** An event from its five columns in the corpus. */
    static Event of(JsonNode columns) {
        Event event = new Event();
        event.id = columns.get(0).asInt();
        event.key = columns.get(1).asText();
        event.timeMs = columns.get(2).asLong();
        event.kind = columns.get(3).asText();
        event.v = columns.get(4).asLong();
        return event;
    }

    Comparable<?> field(String name) {
        return switch (name) {
            case "kind" -> kind;
            case "v" -> v;
            default -> throw new IllegalArgumentException("an event has no field " + name);
        };
    }
}
