import { resolve } from "node:path";
import type { Config } from "../../config/config.ts";
import { decide } from "../../guard/decide.ts";
import type { Access, Decision } from "../../guard/decision.ts";
import type { PreparedCall, Tool } from "./tool.ts";

/** What would happen to a call; `bad_input` when it cannot be prepared or is not admitted, with what was thrown. */
export type Judgement =
  | {
    readonly kind: "judged";
    readonly decision: Decision;
    readonly access: Access;
    /** undefined for an input that cannot be prepared, of a tool that is off */
    readonly prepared: PreparedCall | undefined;
  }
  | { readonly kind: "bad_input"; readonly error: unknown };

/** Judges calls without running them: the executor's own view, and `postern policy explain`'s. */
export interface ToolPolicy {
  isEnabled(tool: Tool): boolean;
  /** Why a tool is off and what turns it on; undefined when it is on */
  whyOff(tool: Tool): string | undefined;
  /** Prepares and decides; has no effect */
  judge(tool: Tool, input: string): Judgement;
  /** Decides about a prepared call, by the newest configuration */
  decide(tool: Tool, prepared: PreparedCall): Decision;
}

export interface ToolPolicyOptions {
  /** The newest configuration */
  readonly config: () => Config;
  /** Absolute */
  readonly workspaceRoot: string;
  /** The user's home folder, for `~/` in forbidden paths */
  readonly home: string;
  /** Postern's own data directory and configuration file. Absolute */
  readonly ownPaths: readonly string[];
}

export function createToolPolicy(options: ToolPolicyOptions): ToolPolicy {
  const offUntil = (tool: Tool) =>
    tool.enabled === "always" || tool.enabled(options.config()) ? undefined : tool.enabledBy ?? "what enables it";

  const decideCall = (tool: Tool, { access, effects }: Pick<PreparedCall, "access" | "effects">) => {
    const { autonomy, security } = options.config();
    const root = effects.root === undefined ? "." : security[effects.root].allowed_root;
    return decide({
      tool: tool.name,
      access,
      effects,
      offUntil: offUntil(tool),
      autonomy,
      workspace: {
        root: options.workspaceRoot,
        fileRoot: resolve(options.workspaceRoot, root),
        home: options.home,
        ownPaths: options.ownPaths,
      },
    });
  };

  return {
    isEnabled: (tool) => offUntil(tool) === undefined,
    whyOff(tool) {
      const change = offUntil(tool);
      return change === undefined ? undefined : `it is off; set ${change}`;
    },
    judge(tool, input) {
      try {
        const prepared = tool.prepare(input);
        // Nobody is asked about a call that cannot run
        if (offUntil(tool) === undefined) prepared.admit?.(options.config());
        return { kind: "judged", decision: decideCall(tool, prepared), access: prepared.access, prepared };
      } catch (error) {
        // Of a tool that is off the input does not matter
        if (offUntil(tool) === undefined) return { kind: "bad_input", error };
        const { access } = tool;
        return { kind: "judged", decision: decideCall(tool, { access, effects: {} }), access, prepared: undefined };
      }
    },
    decide: decideCall,
  };
}
