/**
 * The types of `postern/handlers` as a strict project uses them, see public_types.ts. Each line after `@ts-expect-error` must not compile.
 */
import { chatCompletions, chatSocket, health, live, pair, type Sender } from "../../handlers/handlers.ts";

const identify = (): Sender => ({ identity: { tokenId: "ann", scopes: ["chat"] }, address: "10.0.0.1" });
const facts = { health: () => ({ status: "ok" as const, version: "1.2.3", uptime_seconds: 4 }) };

health({ facts })(new Request("http://127.0.0.1/health")) satisfies Promise<Response>;
live({});
pair({ pairing: { redeem: (code) => Promise.reject(new Error(code ?? "none")) }, identify });
chatCompletions({ agent: undefined, tools: {}, identify });
chatSocket({ agent: undefined, approvals: {} })(new Request("http://127.0.0.1/ws/chat")).open satisfies unknown;

// @ts-expect-error A part is missing
health({});
// @ts-expect-error A part that the handler does not use
live({ facts });
// @ts-expect-error A member of another type
pair({ pairing: { redeem: () => "paired" } });
// @ts-expect-error A scope that there is not
pair({ pairing: {}, identify: () => ({ identity: { tokenId: null, scopes: ["root"] } }) });
