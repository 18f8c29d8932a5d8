import type { ClientAbility } from "../../lib/base/records/tool_info.ts";
import type { ClientCapabilities } from "@modelcontextprotocol/server";
import { canonicalDigest } from "../../lib/base/json.ts";

/**
 * State of a request that waits for its client. The client keeps it and sends it back with the same request. The state is sealed for the
 * client's token and the method, and expires. It grants nothing: it names an approval, which lets its one call through, or work of this
 * gateway that waits for an answer.
 */
export type CallState =
  /** Approval that the client was shown for the call */
  | { readonly approvalId: string; readonly call: string }
  /** Work that is held, and the round of its questions that the client was shown */
  | HeldState;

/** State of a request whose work is held until the client answers. */
export interface HeldState {
  readonly held: string;
  readonly round: number;
  /** Digest of the tool's or the prompt's name and its arguments */
  readonly call: string;
}

/** Returns the digest that binds a state to exactly this request of its method. */
export function requestDigest(
  { name, arguments: input = {} }: { readonly name: string; readonly arguments?: unknown },
): string {
  return canonicalDigest({ name, input });
}

/** Capabilities of a client, as far as it can be asked. */
export interface DeclaredCapabilities {
  readonly elicitation?: { readonly form?: unknown; readonly url?: unknown } | undefined;
  readonly sampling?: unknown;
  readonly roots?: unknown;
}

/** Returns the kinds of questions that a client answers, as it declares them. */
export function abilitiesOf(
  { elicitation, sampling, roots }: DeclaredCapabilities = {},
): ReadonlySet<ClientAbility> {
  // A client without modes speaks the form alone. Source: MCP 2025-11-25 "Elicitation"
  const hasForm = elicitation !== undefined && (elicitation.form !== undefined || elicitation.url === undefined);
  return new Set([
    ...(hasForm ? ["form"] as const : []),
    ...(elicitation?.url === undefined ? [] : ["url"] as const),
    ...(sampling === undefined ? [] : ["sample"] as const),
    ...(roots === undefined ? [] : ["roots"] as const),
  ]);
}

/** Returns the capabilities that a client would have to declare beside its own. undefined: it declares all of them */
export function missingCapabilities(
  needs: readonly ClientAbility[] | undefined,
  can: ReadonlySet<ClientAbility>,
): ClientCapabilities | undefined {
  const missing = needs?.filter((need) => !can.has(need)) ?? [];
  if (missing.length === 0) return undefined;
  const elicitation = {
    ...(missing.includes("form") ? { form: {} } : {}),
    ...(missing.includes("url") ? { url: {} } : {}),
  };
  return {
    ...(Object.keys(elicitation).length === 0 ? {} : { elicitation }),
    ...(missing.includes("sample") ? { sampling: {} } : {}),
    ...(missing.includes("roots") ? { roots: {} } : {}),
  };
}
