import { existsSync } from "node:fs";
import { readFile, realpath, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { messageOf } from "../../lib/base/errors.ts";
import { exactLine, exactText } from "../../lib/base/text.ts";
import type { SkillDetail, SkillInfo, SkillProblem } from "../../lib/base/records/extension_views.ts";
import { type CommandContext, CommandError, defineCliCommand } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { requireYes } from "../terminal/require_yes.ts";
import { toTable } from "../terminal/terminal_text.ts";

const NAME = { type: "positional", required: true, description: "Name of the skill, from postern skill list" } as const;

/** Command `postern skill list`: all skills, and why each is on or off. */
export const skillListCommand = defineCliCommand({
  args: {},
  example: "postern skill list",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const { data, problems } = await gateway.call("GET /v1/skills");
      const rows = data.map(({ name, source, state, description, reason }) => [
        exactLine(name),
        source,
        state,
        exactLine(reason ?? description ?? ""),
      ]);
      const table = rows.length === 0
        ? "There are no skills"
        : toTable(["NAME", "FROM", "STATE", "ABOUT"], rows, context.io.columns);
      const notes = data.flatMap((skill) => notesOf(skill));
      context.print({ skills: data, problems }, [table, ...notes, ...problems.map(exactLine)].join("\n"));
    }),
});

/** Command `postern skill show`: one skill with the text of its files. */
export const skillShowCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern skill show pdf-forms",
  run: (context, { name }) =>
    withGateway(context, async (gateway) => {
      const skill = await gateway.call("GET /v1/skills/:name", { params: { name } });
      const { state, source, folder, reason, text } = skill;
      const head = `${exactLine(skill.name)} (${source}), ${exactLine(folder)}: ${exactLine(reason ?? state)}`;
      context.print(skill, [head, ...notesOf(skill), "", exactText(text)].join("\n"));
    }),
});

/** Command `postern skill add`: installs a skill from a folder, an archive or a git repository. */
export const skillAddCommand = defineCliCommand({
  args: {
    name: NAME,
    source: {
      type: "positional",
      required: true,
      description: "Folder, archive (tar, tar.gz, zip) or URL of a git repository with an optional #branch",
    },
  },
  example: "postern skill add pdf-forms https://example.com/skills.git",
  async run(context, { name, source }) {
    return await withGateway(context, async (gateway) => {
      const skill = await install(context, gateway, { name, source });
      const state = skill.on ? "it is on" : exactLine(skill.reason ?? "it is off");
      const hidden = notesOf(skill).map((note) => `\n${note}`).join("");
      context.print(skill, `Installed ${exactLine(name)}: ${state}${hidden}`);
    });
  },
});

/** Command `postern skill test`: checks a skill strictly. */
export const skillTestCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern skill test pdf-forms",
  async run(context, { name }) {
    return await withGateway(context, async (gateway) => {
      const tested = await gateway.call("GET /v1/skills/:name/test", { params: { name } });
      const lines = tested.errors.map(problemLine);
      const count = `${lines.length} ${lines.length === 1 ? "error" : "errors"}`;
      context.print(tested, tested.ok ? `${exactLine(name)} is in order` : [...lines, count].join("\n"));
      if (!tested.ok) throw new CommandError(`The skill "${exactLine(name)}" has ${count}`);
    });
  },
});

/** Command `postern skill enable`: shows a skill, or what changed of it, and asks. Counts for exactly the content that was shown. */
export const skillEnableCommand = defineCliCommand({
  args: {
    name: NAME,
    digest: { type: "string", valueHint: "sha256", description: "Trust it only with this content" },
    yes: { type: "boolean", description: "Trust it without a question" },
    revoke: { type: "boolean", description: "Stop trusting it, as skill disable does" },
  },
  example: "postern skill enable deploy",
  async run(context, { name, digest, yes, revoke }) {
    return await withGateway(context, async (gateway) => {
      if (revoke === true) return await stopTrusting(context, gateway, name);
      const skill = await gateway.call("GET /v1/skills/:name", { params: { name } });
      if (digest !== undefined && digest !== skill.digest) {
        const reason = `its digest is ${skill.digest}, and not the one that was given`;
        throw new CommandError(`Cannot trust "${exactLine(name)}": ${reason}`);
      }
      if (yes !== true) await askToTrust(context, skill);
      const body = { digest: skill.digest, before: skill.trusted_digest };
      const trusted = await gateway.call("POST /v1/skills/:name/trust", { params: { name }, body });
      const state = trusted.on ? "it is on" : exactLine(trusted.reason ?? "it is off");
      context.print(trusted, `Trusted ${exactLine(name)}: ${state}`);
    });
  },
});

/** Command `postern skill disable`: takes the trust in a skill back. */
export const skillDisableCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern skill disable deploy",
  run: (context, { name }) => withGateway(context, (gateway) => stopTrusting(context, gateway, name)),
});

async function stopTrusting(context: CommandContext, gateway: ReachedGateway, name: string): Promise<void> {
  const skill = await gateway.call("DELETE /v1/skills/:name/trust", { params: { name } });
  context.print(skill, `${exactLine(name)} is no longer trusted`);
}

/** Command `postern skill remove`: removes an installed skill. */
export const skillRemoveCommand = defineCliCommand({
  args: { name: NAME },
  example: "postern skill remove pdf-forms",
  async run(context, { name }) {
    return await withGateway(context, async (gateway) => {
      await gateway.request({ method: "DELETE", path: pathOf(name) });
      context.print({ name, removed: true }, `Removed ${exactLine(name)}`);
    });
  },
});

function pathOf(name: string): string {
  return `/v1/skills/${encodeURIComponent(name)}`;
}

function notesOf({ name, warnings, hides }: SkillInfo): readonly string[] {
  return [
    ...warnings.map((problem) => `${exactLine(name)}: ${problemLine(problem)}`),
    ...hides.map((place) => `${exactLine(name)}: it hides the one in ${exactLine(place)}`),
  ];
}

function problemLine({ file, line, key, reason }: SkillProblem): string {
  return `${exactLine(file)}:${line}: ${key === null ? "" : `"${exactLine(key)}": `}${exactLine(reason)}`;
}

async function install(
  { io }: CommandContext,
  gateway: ReachedGateway,
  { name, source }: { readonly name: string; readonly source: string },
): Promise<SkillInfo> {
  const path = resolve(io.cwd, source);
  if (isAddress(source, path)) {
    return await gateway.call("POST /v1/skill-installations", { body: { name, url: source } });
  }
  const isFolder = await stat(path).then((info) => info.isDirectory(), (cause: Error) => {
    throw new CommandError(`Cannot read the skill "${path}": ${cause.message}`, { cause });
  });
  const bytes = isFolder ? await packFolder(path, name) : await readFile(path);
  return await gateway.call("POST /v1/skills", {
    query: { name, from: path, kind: isFolder ? "folder" : "archive" },
    raw: { type: "application/octet-stream", bytes },
  });
}

/** Tells whether a source is an address, and no file: a URL, or git's `user@host:path`, which the gateway refuses with the way out. */
function isAddress(source: string, path: string): boolean {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(source)) return true;
  return /^[\w.-]+@[\w.-]+:/.test(source) && !existsSync(path);
}

/** Packs a folder under the name of the skill, which its own folder may not have. */
async function packFolder(path: string, name: string): Promise<Uint8Array> {
  const { readSkill } = await import("../../lib/extensions/skills/read_skill.ts");
  const { packSkill } = await import("../../lib/extensions/skills/skill_sources.ts");
  const real = await realpath(path);
  const nowhere = { workspace: "/nonexistent", dataDir: "/nonexistent" };
  try {
    const whole = await readSkill(path, { ...nowhere, layer: "own", shownAs: path });
    if (whole === undefined) throw new Error("it is gone");
    const { contents, links, executables } = whole;
    const [link] = links.keys();
    if (link !== undefined) throw new Error(`its file "${exactLine(link)}" is a link`);
    return packSkill(name, { contents, executables });
  } catch (cause) {
    const reason = messageOf(cause);
    throw new CommandError(`Cannot pack the skill "${real}": ${reason}`, { cause });
  }
}

/** Shows a skill and asks the person for consent. @throws {CommandError} it was not given */
async function askToTrust({ io, say }: CommandContext, skill: SkillDetail): Promise<void> {
  const { name, source, folder, digest, allowed_tools: allowed, difference, text } = skill;
  const shown = exactLine(name);
  say([
    `${shown} (${source}), ${exactLine(folder)}`,
    ...(allowed.length === 0 ? [] : [`Its author would allow, which grants nothing: ${exactLine(allowed.join(", "))}`]),
    `Digest: ${digest}`,
    "",
    difference === null ? exactText(text) : `Changed since it was trusted:\n${exactText(difference)}`,
    "",
    "Whoever wrote this tells your agent what to do once you trust it.",
  ].join("\n"));
  await requireYes({ io }, "Trust it?", {
    unasked: `Cannot trust "${shown}": nobody can be asked here; --yes trusts it`,
    refused: `"${shown}" was not trusted`,
  });
}
