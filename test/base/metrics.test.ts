import assert from "node:assert/strict";
import { test } from "node:test";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";

test("render() writes counters, gauges and histograms in the text format", () => {
  const metrics = createMetrics();
  metrics.counter("postern_b_total", "Bees.", ["kind"]).with('a"b\\c\nd').add(2);
  metrics.gauge("postern_a", "A gauge.").with().set(1.5);
  const histogram = metrics.histogram("postern_c_seconds", "Seconds.", { labels: ["route"], buckets: [0.1, 1] }).with(
    "/x",
  );
  for (const value of [0.05, 0.1, 0.5, 2]) histogram.observe(value);
  assert.equal(
    metrics.render(),
    `# HELP postern_a A gauge.
# TYPE postern_a gauge
postern_a 1.5
# HELP postern_b_total Bees.
# TYPE postern_b_total counter
postern_b_total{kind="a\\"b\\\\c\\nd"} 2
# HELP postern_c_seconds Seconds.
# TYPE postern_c_seconds histogram
postern_c_seconds_bucket{route="/x",le="0.1"} 2
postern_c_seconds_bucket{route="/x",le="1"} 3
postern_c_seconds_bucket{route="/x",le="+Inf"} 4
postern_c_seconds_sum{route="/x"} 2.65
postern_c_seconds_count{route="/x"} 4
`,
  );
});

test("a metric never has more than its bound of series: the rest counts under other", () => {
  const metrics = createMetrics();
  const family = metrics.counter("postern_x_total", "X.", ["path"]);
  for (let i = 0; i < 5000; i++) family.with(`/${i}`).add();
  const lines = metrics.render().trim().split("\n").filter((line) => !line.startsWith("#"));
  assert.ok(lines.length <= 2001, String(lines.length));
  assert.ok(lines.some((line) => line === 'postern_x_total{path="other"} 3000'));
});

test("registering a name twice is our own mistake", () => {
  const metrics = createMetrics();
  metrics.counter("postern_x_total", "X.");
  assert.throws(() => metrics.counter("postern_x_total", "X."), TypeError);
});
