// Asks a gateway through client libraries, with a tool of the program's own: node libraries.mjs <node_modules> <url> <token> <model>
import { createRequire } from "node:module";
import { join } from "node:path";
import process from "node:process";
import { pathToFileURL } from "node:url";

const [folder = "", url = "", token = "", model = ""] = process.argv.slice(2);
const { resolve } = createRequire(join(folder, "here.js"));
const load = async (name) => await import(pathToFileURL(resolve(name)).href);
const [{ z }, ai, { createOpenAI }, { createAnthropic }, { createOpenResponses }] = await Promise.all(
  ["zod", "ai", "@ai-sdk/openai", "@ai-sdk/anthropic", "@ai-sdk/open-responses"].map(load),
);
const [agents, { OpenAI }, { Anthropic }] = await Promise.all(
  ["@openai/agents", "openai", "@anthropic-ai/sdk"].map(load),
);

/** Prints what a library says at the end, and how often its tool was called */
async function report(name, work) {
  let calls = 0;
  const text = await work({ cmd: z.object({ cmd: z.string() }), execute: ({ cmd }) => `ran ${cmd} ${++calls}` });
  console.log(JSON.stringify([name, text, calls]));
}

const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: token });
// In plain mode nothing is kept: without this word the library names items that the gateway is to remember
const forgotten = { providerOptions: { openai: { store: false } } };
const wires = {
  ...(model.startsWith("plain/") ? {} : { "ai kept responses": [openai.responses(model), {}] }),
  "ai responses": [openai.responses(model), forgotten],
  "ai chat": [openai.chat(model), {}],
  "ai messages": [createAnthropic({ baseURL: `${url}/v1`, apiKey: token })(model), {}],
  "ai open responses": [createOpenResponses({ name: "gw", url: `${url}/v1/responses`, apiKey: token })(model), {}],
};
for (const [name, [languageModel, options]] of Object.entries(wires)) {
  const asked = ({ cmd, execute }) => ({
    ...options,
    model: languageModel,
    tools: { exec_command: ai.tool({ description: "Runs a command", inputSchema: cmd, execute }) },
    stopWhen: ai.stepCountIs(6),
    maxRetries: 0,
    prompt: "Work",
  });
  await report(name, async (tool) => (await ai.generateText(asked(tool))).text);
  await report(`${name} stream`, async (tool) => await ai.streamText(asked(tool)).text);
}

agents.setTracingDisabled(true);
const provider = new agents.OpenAIProvider({ apiKey: token, baseURL: `${url}/v1`, useResponses: true });
const runner = new agents.Runner({ modelProvider: provider, tracingDisabled: true });
for (const stream of [false, true]) {
  await report(`agents${stream ? " stream" : ""}`, async ({ cmd, execute }) => {
    const tool = agents.tool({ name: "exec_command", description: "Runs a command", parameters: cmd, execute });
    const result = await runner.run(new agents.Agent({ name: "a", model, tools: [tool] }), "Work", { stream });
    if (stream) { for await (const _ of result); }
    return result.finalOutput;
  });
}

const client = new OpenAI({ apiKey: token, baseURL: `${url}/v1`, maxRetries: 0 });
const parameters = { type: "object", properties: { cmd: { type: "string" } }, required: ["cmd"] };
const described = { name: "exec_command", description: "Runs a command", parameters };
for (const stream of [false, true]) {
  await report(`openai chat${stream ? " stream" : ""}`, async ({ execute }) => {
    const tools = [{ type: "function", function: { ...described, parse: JSON.parse, function: execute } }];
    const messages = [{ role: "user", content: "Work" }];
    return await client.chat.completions.runTools({ model, messages, tools, stream }).finalContent();
  });
}
const claude = new Anthropic({ apiKey: token, baseURL: url, maxRetries: 0 });
for (const stream of [false, true]) {
  await report(`anthropic${stream ? " stream" : ""}`, async ({ execute }) => {
    const tools = [{ name: described.name, description: described.description, input_schema: parameters }];
    const messages = [{ role: "user", content: "Work" }];
    for (;;) {
      const asked = { model, max_tokens: 1000, messages, tools };
      const reply = await (stream ? claude.messages.stream(asked).finalMessage() : claude.messages.create(asked));
      if (reply.stop_reason !== "tool_use") return reply.content.map(({ text = "" }) => text).join("");
      const content = reply.content.filter(({ type }) => type === "tool_use").map(({ id, input }) => (
        { type: "tool_result", tool_use_id: id, content: execute(input) }
      ));
      messages.push({ role: "assistant", content: reply.content }, { role: "user", content });
    }
  });
}
for (const stream of [false, true]) {
  await report(`openai responses${stream ? " stream" : ""}`, async ({ execute }) => {
    const tools = [{ type: "function", strict: false, ...described }];
    const input = [{ role: "user", content: "Work" }];
    for (;;) {
      const asked = { model, input, tools, store: false };
      const reply = await (stream ? client.responses.stream(asked).finalResponse() : client.responses.create(asked));
      const calls = reply.output.filter(({ type }) => type === "function_call");
      if (calls.length === 0) return reply.output_text;
      input.push(...reply.output);
      for (const { call_id, arguments: text } of calls) {
        input.push({ type: "function_call_output", call_id, output: execute(JSON.parse(text)) });
      }
    }
  });
}
