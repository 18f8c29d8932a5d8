import { isRecord } from "../../base/json.ts";
import { resolve } from "node:path";
import { type RunTaint, UNTAINTED } from "../../base/taint.ts";
import type { Config } from "../../config/config.ts";
import { type Access, decide, type DecideInput, type Decision, type Effects } from "../../guard/policy.ts";
import { ANSWERS } from "../../guard/rules.ts";
import { shown } from "../../system/files/parse_path.ts";
import { placeRedirections } from "../../system/process/placed_parts.ts";
import { realPathOf } from "../../system/process/screen_arguments.ts";
import type { PreparedCall, Tool } from "./tool.ts";

/** Decision about a call, or `bad_input` with the error when the call cannot be prepared or is not admitted. */
export type Judgement =
  | {
    readonly kind: "judged";
    readonly decision: Decision;
    readonly access: Access;
    /** undefined for the input of a disabled tool that cannot be prepared */
    readonly prepared: PreparedCall | undefined;
    /** Knowledge that the decision still depends on when the call is made, such as `what git finds in the repository`. Default: nothing */
    readonly unknown?: string;
  }
  | { readonly kind: "bad_input"; readonly error: unknown };

/** Decides about calls without running them, for the executor and for `postern policy explain`. */
export interface ToolPolicy {
  /** Tells whether the newest configuration enables a tool */
  isEnabled(tool: Tool): boolean;
  /** Returns why a tool is off and what turns it on. undefined when the tool is on */
  whyOff(tool: Tool): string | undefined;
  /** Returns the access that lists show, by the newest configuration */
  accessOf(tool: Tool): Access;
  /** Returns the tool with the description that it has under the newest configuration */
  described(tool: Tool): Tool;
  /** Prepares a call and decides about it. Has no effect. @param run what the run has read. Default: no run makes the call */
  judge(tool: Tool, input: string, run?: RunTaint): Judgement;
  /** Decides about a prepared call, by the newest configuration. @param run as above */
  decide(tool: Tool, prepared: PreparedCall, run: RunTaint | undefined): Decision;
  /** Returns where the paths of a call really lie, links resolved. Absolute */
  placesOf(effects: Effects): Promise<readonly string[]>;
  /**
   * Returns the stricter of a decision and of that about the same call with its paths where they really lie, links resolved, and with what the
   * words of its commands name: neither leads past a written rule. Looks at the disk only where a rule names a path
   */
  decideAtPlaces(
    tool: Tool,
    call: { readonly prepared: PreparedCall; readonly decision: Decision },
    run: RunTaint | undefined,
  ): Promise<Decision>;
}

/** Returns the field `op` of an input; null where it has none. */
export function opOf(input: unknown): string | null {
  return isRecord(input) && typeof input["op"] === "string" ? input["op"] : null;
}

/** Edit of one key of the configuration that turns a tool on. */
export interface ToolSwitch {
  /** As `security.write_file.enabled` */
  readonly key: string;
  readonly value: boolean | string;
}

/** Returns the one key that turns a tool on, and its value. undefined for a tool that needs more, or a value that only a person knows. */
export function switchOf({ enabledBy = "", wayOn }: Pick<Tool, "enabledBy" | "wayOn">): ToolSwitch | undefined {
  const [, table, key, value] = /^\[([\w.]+)\] (\w+) = (true|"auto")$/.exec(enabledBy) ?? [];
  if (wayOn !== undefined || value === undefined) return undefined;
  return { key: `${table}.${key}`, value: JSON.parse(value) };
}

const WIDTHS: readonly Access[] = ["read", "state", "write", "network"];

/**
 * Returns the access of a tool, or of one of its calls, under a configuration. The one place that lists, decisions, approvals and audit
 * get it from.
 */
export function accessUnder(
  tool: Pick<Tool, "accessUnder">,
  { access, config }: { readonly access: Access; readonly config: Config },
): Access {
  const wider = tool.accessUnder?.(config) ?? access;
  return WIDTHS.indexOf(wider) > WIDTHS.indexOf(access) ? wider : access;
}

/** Prepares a call with the access and the logins that it has under a configuration. @throws {ToolError} as `Tool.prepare` */
export function prepareUnder(tool: Tool, input: string, config: Config): PreparedCall {
  const prepared = tool.prepare(input);
  const access = accessUnder(tool, { access: prepared.access, config });
  const logins = access === "read" ? [] : tool.loginsUnder?.(config) ?? [];
  const own = prepared.effectsUnder?.(config) ?? prepared.effects;
  const effects = logins.length === 0 ? own : { ...own, logins };
  return access === prepared.access && effects === prepared.effects ? prepared : { ...prepared, access, effects };
}

/** Options of createToolPolicy. */
export interface ToolPolicyOptions {
  /** Returns the newest configuration */
  readonly config: () => Config;
  /** Absolute path of the workspace */
  readonly workspaceRoot: string;
  /** The user's home folder, for `~/` in forbidden paths */
  readonly home: string;
  /** Absolute paths of Postern's data directory and configuration files */
  readonly ownPaths: readonly string[];
  /** True where this gateway can write its own configuration file, as `postern config set` does. Default false */
  readonly writesConfig?: boolean | undefined;
}

/** Creates the policy of the newest configuration. */
export function createToolPolicy(options: ToolPolicyOptions): ToolPolicy {
  const offUntil = (tool: Tool) =>
    tool.enabled === "always" || tool.enabled(options.config())
      ? undefined
      : tool.wayOn?.(options.config()) ?? `set ${tool.enabledBy ?? "what enables it"}`;
  const commandOn = (tool: Tool) => {
    const change = options.writesConfig === true ? switchOf(tool) : undefined;
    return change && `a person can turn it on with \`postern config set ${change.key} ${change.value}\``;
  };

  const fileRootOf = ({ root }: Effects) =>
    resolve(options.workspaceRoot, root === undefined ? "." : options.config().security[root].allowed_root);

  const pathsOf = (effects: Effects) => (effects.paths ?? []).map((path) => resolve(fileRootOf(effects), path));

  const decideCall = (
    tool: Tool,
    { access, effects, carriesTaint, input }:
      & Pick<PreparedCall, "access" | "effects" | "carriesTaint">
      & Partial<Pick<PreparedCall, "input">>,
    run: RunTaint | undefined,
    { workspaceRoot, home, named }:
      & Pick<ToolPolicyOptions, "workspaceRoot" | "home">
      & Pick<DecideInput, "named"> = options,
  ) => {
    const { autonomy } = options.config();
    const off = offUntil(tool);
    return decide({
      tool: tool.name,
      access,
      effects,
      op: opOf(input),
      carriesTaint,
      offUntil: off,
      offWay: off && commandOn(tool),
      autonomy,
      workspace: {
        root: workspaceRoot,
        fileRoot: fileRootOf(effects),
        home,
        ownPaths: options.ownPaths,
      },
      taint: run?.origins ?? UNTAINTED,
      named,
      hasReadUrls: run?.isTainted !== true || (effects.urls ?? []).every((url) => run.links.has(url)),
    });
  };

  return {
    isEnabled: (tool) => offUntil(tool) === undefined,
    whyOff(tool) {
      const change = offUntil(tool);
      return change === undefined ? undefined : `it is off; ${commandOn(tool) ?? change}`;
    },
    accessOf: (tool) => accessUnder(tool, { access: tool.access, config: options.config() }),
    described(tool) {
      const description = tool.descriptionUnder?.(options.config()) ?? tool.description;
      return description === tool.description ? tool : { ...tool, description };
    },
    judge(tool, input, run) {
      try {
        const prepared = prepareUnder(tool, input, options.config());
        // No approval is opened for a call that cannot run
        if (offUntil(tool) === undefined) prepared.admit?.(options.config());
        return { kind: "judged", decision: decideCall(tool, prepared, run), access: prepared.access, prepared };
      } catch (error) {
        // The input of a disabled tool does not matter
        if (offUntil(tool) === undefined) return { kind: "bad_input", error };
        const access = accessUnder(tool, { access: tool.access, config: options.config() });
        const decision = decideCall(tool, { access, effects: {} }, run);
        return { kind: "judged", decision, access, prepared: undefined };
      }
    },
    decide: decideCall,
    placesOf: (effects) => realPlaces(pathsOf(effects)),
    async decideAtPlaces(tool, { prepared, decision }, run) {
      const { effects } = prepared;
      const rules = options.config().autonomy.rules.filter(({ path }) => path !== "");
      if (decision.kind === "deny" || rules.length === 0) return decision;
      const { line } = effects;
      const redirections = line === undefined ? [] : placeRedirections(line, fileRootOf(effects));
      const given = pathsOf(effects);
      const opened = redirections.flat().flatMap(({ path = [] }) => path);
      const paths = [...given, ...opened];
      const isLooked = effects.command !== undefined && rules.some(({ then }) => then !== "allow");
      const words = isLooked ? await (await namedByWords())(effects, fileRootOf(effects)) : [];
      if (paths.length + words.length === 0) return decision;
      const [workspaceRoot = "", home = "", ...named] = await realPlaces([
        options.workspaceRoot,
        options.home,
        ...given,
      ]);
      const places = [...named, ...await Promise.all(opened.map((path) => realPathOf(path, "/")))];
      const placeOf = new Map(paths.map((path, index) => [path, places[index] ?? path]));
      const parts = line?.parts.map((part, index) => ({
        ...part,
        files: (redirections[index] ?? []).map((file) => ({ ...file, path: placeOf.get(file.path ?? "") })),
      }));
      const real = {
        ...effects,
        ...(effects.paths === undefined ? {} : { paths: named }),
        ...(line === undefined || parts === undefined ? {} : { line: { ...line, parts } }),
      };
      const again = decideCall(tool, { ...prepared, effects: real }, run, { workspaceRoot, home, named: words });
      if (ANSWERS.indexOf(again.kind) >= ANSWERS.indexOf(decision.kind)) return decision;
      const moved = paths.findIndex((path, index) => resolve(path) !== places[index]);
      if (moved === -1) return again;
      const why = `${shown(paths[moved] ?? "")} leads to ${shown(places[moved] ?? "")}, and `;
      return { ...again, reason: again.reason.replace(/^[^:]*: /, (head) => head + why) };
    },
  };
}

async function namedByWords() {
  return (await import("../../guard/named_by_words.ts")).namedByWords;
}

async function realPlaces(paths: readonly string[]): Promise<readonly string[]> {
  if (paths.length === 0) return [];
  const { newPlaceOf } = await import("../../guard/tainted_places.ts");
  return await Promise.all(paths.map(newPlaceOf));
}
