import { lazily } from "../base/lazily.ts";
import type { Redactor } from "../base/redact.ts";
import { BUILTIN_TOOLS } from "./builtin.ts";
import { createToolExecutor, type ToolExecutorOptions } from "./runtime/create_tool_executor.ts";
import { createDrainableExecutor, type DrainableExecutor } from "./runtime/drainable_executor.ts";
import type { Tool, ToolServices } from "./runtime/tool.ts";
import type { OwnCommand } from "../system/process/own_command.ts";
import type { ToolSecrets, ToolSecretsOptions } from "./secrets/tool_secrets.ts";

/** Options of `createTools`. */
export interface ToolsOptions extends Omit<ToolExecutorOptions, "tools" | "services"> {
  /** Services of the other wings. */
  readonly services: Omit<ToolServices, "boards" | "catalogue" | "redactor">;
  readonly redactor: Redactor;
  /** Tools of the program that mounts the gateway. Default: none */
  readonly own?: readonly Tool[] | undefined;
}

/** Creates the executor of the built-in tools and of those of other machines. The access to boards is loaded at its first use. */
export function createTools(options: ToolsOptions): DrainableExecutor {
  const { clock, config } = options;
  const loaded = lazily(async () => {
    const { createBoards } = await import("../hardware/boards.ts");
    return createBoards({ config, clock });
  });
  const boards: ToolServices["boards"] = {
    attach: async (...given) => await (await loaded()).attach(...given),
    host: async (...given) => await (await loaded()).host(...given),
  };
  const services = { ...options.services, boards, redactor: options.redactor };
  const executor = createToolExecutor({
    ...options,
    tools: [...BUILTIN_TOOLS, ...options.own ?? []],
    foreign: withoutNames(options),
    services,
  });
  return createDrainableExecutor(executor, { clock });
}

/** Returns the foreign tools without those whose name the program's own tools have: the program is nearer than a plugin. */
function withoutNames({ foreign, own = [] }: Pick<ToolsOptions, "foreign" | "own">): ToolsOptions["foreign"] {
  if (foreign === undefined || own.length === 0) return foreign;
  const names = new Set(own.map(({ name }) => name));
  let known: readonly Tool[] | undefined;
  let kept: readonly Tool[] = [];
  return () => {
    const newest = foreign();
    if (newest !== known) kept = newest.filter(({ name }) => !names.has(name));
    known = newest;
    return kept;
  };
}

/** Services that the store of secrets uses. */
export interface LazySecretsOptions
  extends
    Omit<ToolSecretsOptions, "onSecret" | "onTokens" | "run">,
    Omit<OwnCommand, "words" | "signal" | "environment"> {
  readonly redactor: Pick<Redactor, "add" | "replace">;
  /** The gateway's environment, of which the command of a secret gets a part */
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Creates the store of secrets, which is loaded at its first use. */
export function createLazySecrets(options: LazySecretsOptions): ToolSecrets {
  const { clock, config, environment, guardedFetch, commands, redactor, env, home } = options;
  const loaded = lazily(async () => {
    const { createToolSecrets } = await import("./secrets/tool_secrets.ts");
    const run = async (words: readonly string[], signal: AbortSignal) => {
      const { runOwnCommand } = await import("../system/process/own_command.ts");
      return await runOwnCommand({ words, home, environment: env, commands, clock, signal });
    };
    return createToolSecrets({
      config,
      clock,
      environment,
      guardedFetch,
      onSecret: redactor.add,
      onTokens: redactor.replace,
      run,
    });
  });
  return {
    value: async (...given) => await (await loaded()).value(...given),
    fill: async (...given) => await (await loaded()).fill(...given),
    guard: async (...given) => await (await loaded()).guard(...given),
    token: async (...given) => await (await loaded()).token(...given),
    dropToken: async (...given) => await (await loaded()).dropToken(...given),
  };
}
