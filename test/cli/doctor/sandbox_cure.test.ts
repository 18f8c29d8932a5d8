import assert from "node:assert/strict";
import { dirname } from "node:path";
import { test } from "node:test";
import { sandboxCure } from "../../../cli/doctor/sandbox_cure.ts";

const NONE = { kind: "none", reason: "bubblewrap does not work here (setting up uid map: Permission denied)" } as const;
const RESTRICTED = { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1" };
const UBUNTU = { "/etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian' };

/** Returns the cure on a Linux that has these files. */
function cureWith(
  files: Readonly<Record<string, string>>,
  { isInstalled = true, platform = "linux" } = {},
): Promise<string> {
  return sandboxCure(NONE, {
    platform,
    findBubblewrap: () => Promise.resolve(isInstalled ? "/usr/bin/bwrap" : undefined),
    read: (path) => Promise.resolve(files[path] ?? ""),
    list: (folder) =>
      Promise.resolve(
        Object.keys(files).filter((path) => dirname(path) === folder).map((path) => path.slice(folder.length + 1)),
      ),
  });
}

const WITHOUT = { isInstalled: false };

for (
  const [system, command] of [
    [UBUNTU["/etc/os-release"], "sudo apt install bubblewrap"],
    ['ID="rocky"\nID_LIKE="rhel centos fedora"', "sudo dnf install bubblewrap"],
    ["ID=arch", "sudo pacman -S bubblewrap"],
    ['ID="opensuse-leap"\nID_LIKE="suse opensuse"', "sudo zypper install bubblewrap"],
    ["ID=alpine", "sudo apk add bubblewrap"],
    ["ID=nixos", "install bubblewrap with your package manager"],
  ] as const
) {
  test(`without bubblewrap its package is named: ${command}`, async () =>
    assert.equal(await cureWith({ "/etc/os-release": system }, WITHOUT), `${command}, and restart the gateway`));
}

test("where AppArmor refuses user namespaces, Ubuntu's own profile is put in and loaded", async () => {
  const profile = "sudo apt install apparmor-profiles && sudo install -m 644 " +
    "/usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && " +
    "sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict, and restart the gateway";
  assert.equal(await cureWith({ ...UBUNTU, ...RESTRICTED }), profile);
  assert.equal(await cureWith({ ...UBUNTU, ...RESTRICTED }, WITHOUT), `sudo apt install bubblewrap && ${profile}`);
});

for (
  const text of [
    "abi <abi/4.0>,\nprofile bwrap /usr/bin/bwrap flags=(unconfined) {\n  userns,\n}",
    "profile mine @{bin}/bwrap {\n}",
    "  /usr/bin/bwrap flags=(unconfined) {\n}",
    "/usr/bin/bwrap {\n}",
  ]
) {
  test(`a profile for bubblewrap that is there is loaded, and no second one made: ${text.split("{", 1)[0]?.trim()}`, async () => {
    const files = { ...UBUNTU, ...RESTRICTED, "/etc/apparmor.d/mine": text };
    assert.equal(await cureWith(files), "sudo apparmor_parser -r /etc/apparmor.d/mine, and restart the gateway");
    assert.equal(await cureWith(files, WITHOUT), "sudo apt install bubblewrap, and restart the gateway");
    assert.equal(
      await cureWith({ ...files, "/etc/apparmor.d/disable/mine": text }),
      "sudo rm /etc/apparmor.d/disable/mine && sudo apparmor_parser -r /etc/apparmor.d/mine, and restart the gateway",
    );
  });
}

for (
  const text of [
    "# profile bwrap /usr/bin/bwrap {",
    "profile flatpak /usr/bin/flatpak {\n  /usr/bin/bwrap ix,\n  @{bin}/bwrap ix,\n}",
  ]
) {
  test(`a profile of another program is none for bubblewrap: ${text.split("\n", 1)[0]}`, async () =>
    assert.match(await cureWith({ ...RESTRICTED, "/etc/apparmor.d/other": text }), /apparmor-profiles/));
}

test("settings of the kernel that refuse user namespaces are named", async () => {
  assert.equal(
    await cureWith({ "/proc/sys/kernel/unprivileged_userns_clone": "0", "/proc/sys/user/max_user_namespaces": "0" }),
    "sudo sysctl -w kernel.unprivileged_userns_clone=1 && sudo sysctl -w user.max_user_namespaces=15000, and restart the gateway",
  );
  assert.match(await cureWith({}), /allow user namespaces/);
});

test("on macOS the way is a container, and nothing is installed", async () =>
  assert.match(await cureWith({}, { platform: "darwin" }), /Linux container or virtual machine/));

test("a bubblewrap that did not answer is tried again", async () =>
  assert.match(await sandboxCure({ kind: "unanswered", reason: "it did not answer within 10 s" }), /^postern doctor/));
