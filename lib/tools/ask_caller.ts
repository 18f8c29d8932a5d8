import type { ClientAbility } from "../base/records/tool_info.ts";
import { ToolError } from "../base/errors.ts";
import { isRecord } from "../base/json.ts";
import type {
  ProgramAbility,
  ProgramQuestion,
  ProgramQuestionAnswer,
  ProgramQuestions,
  ProgramSampleRequest,
} from "./program_questions.ts";
import { type CallContext, LOG_SEVERITIES, type LogSeverity } from "./runtime/tool_call.ts";

/** Context of a call or of a prompt, as far as it asks. */
export interface AskingContext extends Pick<CallContext, "elicit" | "client" | "tell"> {
  readonly progress: (message: string) => void;
  readonly signal: AbortSignal;
  /** Masks known secrets in questions */
  readonly redact: (text: string) => string;
}

const KEY = /^[A-Za-z0-9_.-]{1,64}$/;
const MAX_TOKENS = 1_000_000;
/** Characters of all the messages of one request to a model. */
const MAX_CHARACTERS = 200_000;
/** Characters of a form as JSON. */
const MAX_FORM = 65_536;

/** Returns the functions by which a program's tool or prompt asks. */
export function toProgramQuestions(context: AskingContext): ProgramQuestions {
  const ask = (question: ProgramQuestion) => handled(askPerson(question, context));
  return {
    can: abilitiesOf(context),
    ask,
    askAll: (questions) => handled(askAll(questions, ask)),
    sample: (request) => handled(askModel(request, context)),
    roots: (options = {}) => handled(askRoots(options, context)),
    log: (level, message) => tellLog(level, message, context),
  };
}

/** Returns a promise that a program may forget: an answer that nobody waits for must not end the process. */
function handled<T>(work: Promise<T>): Promise<T> {
  work.catch(() => {});
  return work;
}

async function askAll<Key extends string>(
  questions: Readonly<Record<Key, ProgramQuestion>>,
  ask: ProgramQuestions["ask"],
): Promise<Readonly<Record<Key, ProgramQuestionAnswer>>> {
  const entries = Object.entries<ProgramQuestion>(questions);
  const answers = await Promise.all(
    entries.map(async ([key, question]) => [key, await ask({ ...question, key })] as const),
  );
  // The names are those of the questions
  return Object.fromEntries(answers) as Record<Key, ProgramQuestionAnswer>;
}

async function askModel(
  request: ProgramSampleRequest,
  { client, signal, redact }: AskingContext,
): Promise<{ readonly text: string; readonly model: string }> {
  const { key, system, messages, ...rest } = checkSample(request);
  if (client?.can.has("sample") !== true) throw unanswered("its model", "sampling");
  return await client.sample({
    ...rest,
    messages: messages.map(({ role, content }) => ({ role, content: redact(content) })),
    ...(system === undefined ? {} : { system: redact(system) }),
  }, { signal, key });
}

async function askRoots(
  { key }: { readonly key?: string },
  { client, signal }: AskingContext,
): Promise<readonly { readonly uri: string; readonly name?: string | undefined }[]> {
  checkKey(key);
  if (client?.can.has("roots") !== true) throw unanswered("its folders", "roots");
  return await client.roots({ signal, key });
}

/** @throws {ToolError} where a client of MCP must answer and the call comes from none that does */
export function checkClientNeeds(
  name: string,
  needs: readonly ClientAbility[] | undefined,
  can: ReadonlySet<ProgramAbility>,
): void {
  const missing = needs?.filter((need) => !can.has(need)) ?? [];
  if (missing.length === 0) return;
  throw new ToolError(
    "client_needed",
    `Cannot call "${name}": it asks whoever calls it (${missing.join(", ")}), and this caller does not answer; ` +
      `call it from a client of MCP that does`,
  );
}

function abilitiesOf({ elicit, client }: AskingContext): ReadonlySet<ProgramAbility> {
  if (client !== undefined) return client.can;
  return new Set(elicit === undefined ? [] : ["form", "url"]);
}

async function askPerson(question: ProgramQuestion, context: AskingContext): Promise<ProgramQuestionAnswer> {
  const { elicit, redact, signal } = context;
  const { message, key } = question;
  checkKey(key);
  const isForm = "schema" in question;
  const schema = isForm ? toWireForm(question.schema) : undefined;
  const { parseElicitation } = await import("../guard/elicitation.ts");
  const parsed = parseElicitation(
    isForm ? { message, requestedSchema: schema } : { message, mode: "url", url: question.url },
    { redact },
  );
  if ("refused" in parsed) throw new TypeError(parsed.refused);
  if (elicit === undefined) return { action: "cancel", reason: "nobody who called can be asked" };
  const answer = await elicit(parsed, { signal, key, schema });
  return answer.action === "accept" ? { action: "accept", content: answer.content ?? {} } : answer;
}

/** Returns a copy of a form without anything that the forms of the protocol do not have. @throws {TypeError} */
function toWireForm(schema: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const json = JSON.stringify(schema) ?? "";
  if (json.length > MAX_FORM) throw new TypeError(`Cannot ask: the form has over ${MAX_FORM} characters as JSON`);
  const { properties, required }: Readonly<Record<string, unknown>> = JSON.parse(json || "{}");
  const fields = Object.entries(isRecord(properties) ? properties : {}).map(([name, field]) =>
    [name, isRecord(field) ? pick(field, FIELD_KEYS) : field] as const
  );
  return {
    type: "object",
    properties: Object.fromEntries(fields),
    ...(required === undefined ? {} : { required }),
  };
}

/** Keywords of a field. Source: Model Context Protocol 2025-11-25, "Elicitation", "Requested Schema" */
const FIELD_KEYS = new Set([
  ...["type", "title", "description", "default", "enum", "enumNames", "oneOf", "items", "format"],
  ...["minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"],
]);

function pick(table: Readonly<Record<string, unknown>>, keys: ReadonlySet<string>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(table).filter(([key]) => keys.has(key)));
}

/** @throws {TypeError} */
function checkSample(request: ProgramSampleRequest): ProgramSampleRequest {
  const { messages, system, maxTokens, temperature, key } = request;
  checkKey(key);
  const wrong = (why: string) => new TypeError(`Cannot ask the client's model: ${why}`);
  const isMessage = ({ role, content }: ProgramSampleRequest["messages"][number]) =>
    (role === "user" || role === "assistant") && typeof content === "string";
  if (!Array.isArray(messages) || messages.length === 0 || !messages.every(isMessage)) {
    throw wrong("messages must be a list of { role, content }");
  }
  const length = messages.reduce((sum, { content }) => sum + content.length, system?.length ?? 0);
  if (length > MAX_CHARACTERS) throw wrong(`its messages have over ${MAX_CHARACTERS} characters`);
  if (!Number.isInteger(maxTokens) || maxTokens < 1 || maxTokens > MAX_TOKENS) {
    throw wrong(`maxTokens must be a whole number from 1 to ${MAX_TOKENS}`);
  }
  if (temperature !== undefined && !Number.isFinite(temperature)) throw wrong("temperature must be a number");
  return { messages, maxTokens, ...pickDefined({ system, temperature, key }) };
}

function pickDefined<T extends object>(table: T): { [Key in keyof T]?: Exclude<T[Key], undefined> } {
  // The entries that are left are those with a value
  return Object.fromEntries(Object.entries(table).filter(([, value]) => value !== undefined)) as {
    [Key in keyof T]?: Exclude<T[Key], undefined>;
  };
}

/** @throws {TypeError} */
function checkKey(key: string | undefined): void {
  if (key !== undefined && (!KEY.test(key) || key === "__proto__")) {
    throw new TypeError(`Cannot ask: a key must match ${KEY.source}`);
  }
}

function tellLog(level: LogSeverity, message: string, { tell, progress }: AskingContext): void {
  if (!LOG_SEVERITIES.includes(level)) {
    throw new TypeError(`Cannot log: a level is one of ${LOG_SEVERITIES.join(", ")}`);
  }
  if (tell !== undefined) return tell(level, String(message));
  if (level === "debug") return;
  progress(level === "info" || level === "notice" ? String(message) : `${level}: ${message}`);
}

function unanswered(what: string, capability: string): ToolError {
  return new ToolError(
    "client_needed",
    `Cannot ask the caller for ${what}: only a client of MCP that declares "${capability}" answers, and this call comes from none`,
  );
}
