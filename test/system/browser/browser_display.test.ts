import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { findDisplay } from "../../../lib/system/browser/browser_display.ts";

const display = (environment: Readonly<Record<string, string>>, home = "/nonexistent") =>
  findDisplay({ environment: (name) => environment[name], home, platform: "linux" });

test("a browser with a window sees the socket of the display and its key, and nothing else of the session", async () => {
  const home = mkdtempSync(join(tmpdir(), "postern-test-"));
  try {
    writeFileSync(join(home, ".Xauthority"), "key");
    const { flags, inside } = await display({ DISPLAY: ":7.0", DBUS_SESSION_BUS_ADDRESS: "unix:path=/run/bus" }, home);
    assert.deepEqual(flags, ["--ozone-platform=x11"]);
    assert.deepEqual(inside, {
      mounts: [
        ...["--ro-bind", "/tmp/.X11-unix/X7", "/tmp/.X11-unix/X7"],
        ...["--ro-bind", join(home, ".Xauthority"), "/tmp/xauthority"],
      ],
      env: { DISPLAY: ":7.0", XAUTHORITY: "/tmp/xauthority" },
    });
  } finally {
    rmSync(home, { recursive: true });
  }
  assert.deepEqual(
    (await display({ WAYLAND_DISPLAY: "wayland-1", XDG_RUNTIME_DIR: "/run/user/1", DISPLAY: ":0" })).inside,
    {
      mounts: ["--ro-bind", "/run/user/1/wayland-1", "/tmp/wayland/wayland-1"],
      env: { WAYLAND_DISPLAY: "wayland-1", XDG_RUNTIME_DIR: "/tmp/wayland" },
    },
  );
});

for (
  const [what, environment, message] of [
    ["no display", {}, /neither WAYLAND_DISPLAY nor DISPLAY is set/],
    [
      "a display of another machine",
      { DISPLAY: "far.test:0" },
      /DISPLAY is "far\.test:0", which is no display of this machine; .*headless = true/,
    ],
    ["a display behind ssh", { DISPLAY: "localhost:10.0" }, /which is no display of this machine/],
    ["a path for a display", { DISPLAY: ":0/../x" }, /which is no display of this machine/],
    ["a wayland display without its folder", { WAYLAND_DISPLAY: "wayland-0" }, /XDG_RUNTIME_DIR is not set/],
  ] as const
) {
  test(`${what} opens no browser with a window`, () =>
    assert.rejects(display(environment), { code: "no_display", message }));
}
