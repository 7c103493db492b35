package headgate;

import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;

/** A watermark after each event, so that no clock has a say: the highest time so far less the disorder less 1 ms. */
final class WatermarkAfterEachEvent implements WatermarkGenerator<Event> {
    private final Long disorderMs;
    private long highestMs = Long.MIN_VALUE;

    /** With null there is no watermark before the end. */
    WatermarkAfterEachEvent(Long disorderMs) {
        this.disorderMs = disorderMs;
    }

    @Override
    public void onEvent(Event event, long timeMs, WatermarkOutput output) {
        if (disorderMs != null && timeMs > highestMs) {
            highestMs = timeMs;
            output.emitWatermark(new Watermark(highestMs - disorderMs - 1));
        }
    }

    @Override
    public void onPeriodicEmit(WatermarkOutput output) {}
}
