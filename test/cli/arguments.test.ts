import assert from "node:assert/strict";
import { test } from "node:test";
import { VERBS } from "../../cli/verbs.ts";
import { VERSION } from "../../lib/base/version.ts";
import { onMachine } from "./support/run_in.ts";

test("help goes to stdout with exit 0", () =>
  onMachine(async ({ run }) => {
    const { code, stdout, stderr } = await run(["--help"]);
    assert.deepEqual([code, stderr], [0, ""]);
    assert.match(stdout, /^Postern: /);
  }));

test("every command has help of its own with an example that its own flags allow", () =>
  onMachine(async ({ run }) => {
    for (const verb of Object.keys(VERBS)) {
      const { code, stdout } = await run([...verb.split(" "), "--help"]);
      assert.equal(code, 0, verb);
      assert.match(stdout, new RegExp(`Usage: postern ${verb}`), verb);
      assert.match(stdout, /Example:\n {2}\S/, verb);
    }
  }));

test("in a narrow terminal help and refusals break between words, and examples stay one line", () =>
  onMachine(async ({ run }) => {
    const narrow = { terminal: true, columns: 50 };
    const { stdout: list } = await run(["--help"], narrow);
    assert.ok(list.split("\n").every((line) => line.length <= 50), list);
    assert.match(list, /^ {2}daemon {8}The gateway in the background:\n {16}start, status, stop$/m);
    const { stdout: help } = await run(["approvals", "approve", "--help"], narrow);
    assert.match(help, /^ {2}postern approval approve apr_0123456789 --remember always --match folder$/m);
    const { stderr } = await run(["gateway", "--prot", "3"], narrow);
    assert.equal(stderr, 'Cannot use "--prot": there is no such flag; did\nyou mean --port?\n');
    const { stderr: piped } = await run(["gateway", "--prot", "3"], { columns: 50 });
    assert.equal(piped.split("\n").length, 2);
  }));

test("no command at all, and a group without its verb, show help on stderr with exit 2", () =>
  onMachine(async ({ run }) => {
    for (const argv of [[], ["config"], ["tools"], ["token", "--json"], ["service", "--service-init", "openrc"]]) {
      const { code, stdout, stderr } = await run(argv);
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, /Usage: postern/);
    }
    assert.equal((await run(["config", "--help"])).code, 0);
  }));

test("--version prints the version", () =>
  onMachine(async ({ run }) => {
    assert.deepEqual(await run(["--version"]), { code: 0, stdout: `${VERSION}\n`, stderr: "" });
  }));

for (
  const [argv, told] of [
    [["gatway"], /"gatway": there is no such command; did you mean postern gateway\?/],
    [["schedul", "list"], /did you mean postern schedule list\?/],
    [["schedules", "lst"], /"schedules lst": there is no such command; did you mean postern schedule list\?/],
    [["config", "shwo"], /"config shwo": there is no such command; did you mean postern config show\?/],
    [["xyzzy"], /see postern --help/],
    [["uninstall"], /did you mean postern service uninstall\?/],
    [["xyzzy", "--help"], /there is no such command/],
    [["--prot"], /there is no such flag; see postern --help/],
    [["gateway", "--prot", "3"], /"--prot": there is no such flag; did you mean --port\?/],
    [["gateway", "--new-pairing=yes"], /takes no value/],
    [["gateway", "--port"], /"--port": it needs a value/],
    [["gateway", "--port", "--host", "x"], /"--port": it needs a value/],
    [["gateway", "--port", "http"], /a number from 0 to 65535, not "http"/],
    [["gateway", "extra"], /"extra" is one argument too many/],
    [["config", "get"], /<key> is missing/],
    [["config", "get", "gateway.prot"], /did you mean "gateway\.port"\?/],
    [["config", "set", "a", "b", "c"], /"c" is one argument too many/],
    [["token", "revoke"], /give one id, or --all/],
    [["token", "revoke", "x", "--all"], /give one id, or --all/],
    [["token", "create", "--scope", "chat,root"], /"root" is none of/],
    [["token", "create", "--ttl", "soon"], /"--ttl": it must be a time such as 90s/],
    [["token", "create", "--idle-ttl", "0d"], /"--idle-ttl": it must be a time such as 90s/],
    [["--config"], /"--config": it needs a value/],
    [["--config", "--workspace", "w", "config", "show"], /"--config": it needs a value/],
    [["--json=yes", "config", "show"], /"--json": it takes no value/],
    [["config", "--prot", "get"], /"--prot": there is no such flag; see postern config --help/],
    [["models", "tru"], /"tru" is one argument too many/],
    [["--", "gateway"], /"gateway" is one argument too many; see postern --help/],
    [["constructor"], /"constructor": there is no such command/],
    [["skill", "constructor", "x"], /"skill constructor": there is no such command/],
    [["skill", "show", "x", "--constructor=y"], /"--constructor": there is no such flag/],
    [["tools", "list", "--data-dir="], /"--data-dir": it needs a value/],
  ] as const
) {
  test(`"postern ${argv.join(" ")}" is refused with exit 2`, () =>
    onMachine(async ({ run }) => {
      const { code, stdout, stderr } = await run(argv);
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, told);
    }));
}

test("a word that every object has a property for is a word like any other", () =>
  onMachine(async ({ run }) => {
    for (const word of ["constructor", "toString", "__proto__"]) {
      const { code, stderr } = await run(["tools", "call", "read_file", "--input", word]);
      assert.deepEqual([code, stderr], [1, `Cannot open "${word}": it does not exist\n`]);
    }
  }));

test("global flags stand before or after the verb, with a space or an equals sign", () =>
  onMachine(async ({ run, cwd }) => {
    for (
      const argv of [
        ["--data-dir", "d", "--json", "config", "get", "data_dir"],
        ["config", "--data-dir=d", "get", "--json", "data_dir"],
        ["config", "get", "data_dir", "--json", "--data-dir", "d"],
      ]
    ) {
      const { code, stdout } = await run(argv);
      assert.deepEqual([code, JSON.parse(stdout)], [0, `${cwd}/d`]);
    }
  }));

test("with --json an error is one object on stderr, with every problem of a configuration", () =>
  onMachine(async ({ run }) => {
    const { code, stdout, stderr } = await run(["config", "check", "--json"], {
      env: { POSTERN__GATEWAY__PORT: "x", POSTERN__GATEWAY__PROT: "1" },
    });
    assert.deepEqual([code, stdout], [78, ""]);
    const { error } = JSON.parse(stderr);
    assert.equal(error.code, "config_invalid");
    assert.equal(error.problems.length, 2);
  }));
