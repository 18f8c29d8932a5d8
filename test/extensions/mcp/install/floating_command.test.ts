import assert from "node:assert/strict";
import { test } from "node:test";
import { floatingCommand, floatingWarning } from "../../../../lib/extensions/mcp/install/floating_command.ts";

for (
  const [line, expected] of [
    ["npx -y @acme/notes@1.2.0 /data", "postern mcp add npm:@acme/notes@1.2.0 --name s --replace -- <arguments>"],
    ["/usr/local/bin/npx notes", "postern mcp add npm:notes --name s --replace"],
    ["npx --package=@acme/tools -- notes", "postern mcp add npm:@acme/tools --name s --replace --program notes"],
    ["npx -p @acme/tools notes x", "postern mcp add npm:@acme/tools --name s --replace --program notes -- <arguments>"],
    ["npm exec --yes notes", "postern mcp add npm:notes --name s --replace"],
    ["pnpm dlx notes", "postern mcp add npm:notes --name s --replace"],
    ["uvx mcp-server-time --local", "postern mcp add pypi:mcp-server-time --name s --replace -- <arguments>"],
    [
      "uvx --python 3.12 --from mcp-time==1.0 time-server",
      "postern mcp add pypi:mcp-time==1.0 --name s --replace --program time-server",
    ],
    ["uv tool run notes", "postern mcp add pypi:notes --name s --replace"],
    ["pipx run notes", "postern mcp add pypi:notes --name s --replace"],
    ["npx github:owner/repository", "postern mcp add npm:<package> --name s --replace"],
    ["npx.cmd notes", "postern mcp add npm:notes --name s --replace"],
  ] as const
) {
  test(`${line} is warned about, with the command that installs it once`, () => {
    const [command = "", ...args] = line.split(" ");
    const warning = floatingWarning("s", { command, args });
    assert.match(
      warning ?? "",
      /fetches its program at each start, so it may run other code tomorrow; install it once with: /,
    );
    assert.equal(warning?.split("install it once with: ")[1], expected);
  });
}

test("a program that is there is not warned about", () => {
  for (const line of ["node index.js", "/opt/notes", "npm start", "uv sync", "docker run x", "python -m notes"]) {
    const [command = "", ...args] = line.split(" ");
    assert.equal(floatingCommand({ command, args }), undefined, line);
  }
});

test("arguments of the server, which may hold a secret, are not in the warning", () => {
  const warning = floatingWarning("s", { command: "npx", args: ["-y", "notes", "--key", "hunter2"] });
  assert.doesNotMatch(warning ?? "", /hunter2/);
});
