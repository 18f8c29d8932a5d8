import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { untilServiceAnswers } from "../../../cli/daemon/service_status.ts";
import { type ServiceManager, toServiceMark, type UnitState } from "../../../lib/host/service/service_manager.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

/** Waits for a service of `machine` that listens at port 1 unless a gateway runs there; each look is answered by the next state. */
function starting(machine: Machine, states: readonly Partial<UnitState>[], { config = "", waits = false } = {}) {
  mkdirSync(machine.dataDir, { recursive: true, mode: 0o700 });
  const own = join(machine.cwd, "own.toml");
  writeFileSync(own, config === "" ? "[gateway]\nport = 1\n" : config);
  const file = join(machine.cwd, "unit");
  const command = ["/opt/postern", `--config=${own}`, `--data-dir=${machine.dataDir}`];
  writeFileSync(file, `# ${toServiceMark({ command, directory: machine.dataDir, graceSeconds: 1 })}\n`);
  const clock = createFakeClock();
  const said: string[] = [];
  let looks = 0;
  const manager = {
    init: "openrc",
    file,
    waits,
    state: () =>
      Promise.resolve({
        ...{ installed: true, enabled: true, active: "running", detail: "status: started" },
        ...states[Math.min(looks++, states.length - 1)],
      }),
  } as unknown as ServiceManager;
  const context = {
    loadOptions: { env: {}, cwd: machine.cwd, home: machine.home, flags: {} },
    say: (text: string) => void said.push(text),
  };
  const wait = { over: false, failed: undefined as Error | undefined };
  void untilServiceAnswers(context as Parameters<typeof untilServiceAnswers>[0], manager, { verb: "start", clock })
    .catch((error) => void (wait.failed = error))
    .finally(() => void (wait.over = true));
  return {
    said,
    looks: () => looks,
    async result() {
      while (!wait.over) {
        await new Promise((resolve) => setTimeout(resolve, 1));
        if (clock.pending() > 0) await clock.advance(200);
      }
      return wait.failed?.message;
    },
  };
}

test("a start is over when the service answers", () =>
  onMachine(async (machine) => {
    await machine.withGateway([], async () => {
      const start = starting(machine, [{ active: "starting" }, { active: "running" }]);
      assert.equal(await start.result(), undefined);
      assert.equal(start.looks(), 2);
    });
  }));

test("a manager that waits by itself is not asked again", () =>
  onMachine(async (machine) => {
    const start = starting(machine, [{}], { waits: true });
    assert.deepEqual([await start.result(), start.looks()], [undefined, 0]);
  }));

for (
  const [name, state, config, told] of [
    [
      "given up by its manager",
      { active: "failed", detail: "status: crashed" },
      "",
      /openrc says status: crashed; see/,
    ],
    ["stopped again", { active: "stopped", detail: "status: stopped" }, "", /openrc says status: stopped; see/],
    ["never answering", {}, "", /nothing answers at http:\/\/127\.0\.0\.1:1\/ after 60 s; see postern service status/],
    ["without a usable configuration", {}, "nonsense = 1\n", /its configuration cannot be used/],
  ] as const
) {
  test(`a start fails for a service that is ${name}`, () =>
    onMachine(async (machine) => {
      const start = starting(machine, [state], { config });
      assert.match(await start.result() ?? "", told);
      assert.equal(start.said.some((text) => text.includes("nonsense")), config !== "");
    }));
}

test("a port that the system chose cannot be looked up, and is not waited for", () =>
  onMachine(async (machine) => {
    const start = starting(machine, [{}], { config: "[gateway]\nport = 0\n" });
    assert.equal(await start.result(), undefined);
  }));
