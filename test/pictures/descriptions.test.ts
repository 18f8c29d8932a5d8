import { test } from "node:test";
import type { Route } from "../../handlers/route.ts";
import { runFailure } from "../../handlers/wire/http_errors.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import {
  ERROR_CODES,
  type ErrorCode,
  ProviderError,
  type ProviderErrorCode,
  refuse,
  ToolError,
} from "../../lib/base/errors.ts";
import { configJsonSchema } from "../../lib/config/schema_keys.ts";
import { sourceFiles } from "../support/source_files.ts";
import { createTestRouter } from "../support/test_router.ts";
import { comparePicture, outlineOf } from "./picture.ts";

/** Descriptions and errors that programs meet, by the picture that holds them. */
const PICTURES: Readonly<Record<string, () => readonly string[] | Promise<readonly string[]>>> = {
  "openapi.txt": describeApi,
  "configuration.txt": () => outlineOf(configJsonSchema()),
  "error_replies.txt": errorReplies,
  "other_errors.txt": otherErrors,
};

for (const [name, look] of Object.entries(PICTURES)) {
  test(`${name} shows what is there`, async () => comparePicture(name, await look()));
}

async function describeApi(): Promise<readonly string[]> {
  const reply = await createTestRouter().send("GET", "/openapi.json", { token: null });
  return outlineOf(await reply.json());
}

/** Failures as the code that meets them throws them, each by a name. Statuses of providers are those that are told apart. */
const FAILURES: Readonly<Record<string, () => Error>> = {
  ...Object.fromEntries(
    (["client_gone", "timeout", "cancelled", "shutdown", "budget"] as const).flatMap((reason) => [
      [`cancelled: ${reason}`, () => new CancelError(reason)],
      [`run ended: ${reason}`, () => runFailure({ code: reason, message: "Cannot" })],
    ]),
  ),
  ...Object.fromEntries(
    ([
      ...[400, 401, 403, 404, 413, 422, 500].map((status) => ["provider_rejected", status] as const),
      ...(["model_not_found", "provider_rate_limited", "provider_timeout", "provider_error"] as const).map((code) =>
        [code, undefined] as const
      ),
    ] as const satisfies readonly (readonly [ProviderErrorCode, number | undefined])[]).flatMap(([code, status]) => {
      const name = status === undefined ? code : `${code} ${status}`;
      return [
        [
          `provider: ${name}`,
          () => new ProviderError(code, "Cannot", { provider: "p", ...(status === undefined ? {} : { status }) }),
        ],
        [`run ended: ${name}`, () => runFailure({ code, message: "Cannot" })],
      ];
    }),
  ),
  "tool: any": () => new ToolError("path_outside_root", "Cannot"),
  "run ended: unknown": () => runFailure({ code: "unknown", message: "Cannot" }),
  "bug": () => new TypeError("secret"),
};

/** Returns the reply to a request that fails, with the headers that only failures have: each code of the table, then each kind of failure. */
async function errorReplies(): Promise<readonly string[]> {
  const codes = Object.keys(ERROR_CODES).sort() as ErrorCode[]; // the keys of the table
  const failures = { ...Object.fromEntries(codes.map((code) => [code, () => refuse(code, "Cannot")])), ...FAILURES };
  const names = Object.keys(failures);
  const route: Route = {
    method: "GET",
    path: "/failures/:id",
    access: "public",
    summary: "",
    reply: { status: 200 },
    handler: (_request, { params }) => {
      throw failures[names[Number(params["id"])] ?? ""]?.();
    },
  };
  const { send } = createTestRouter({ routes: [route] });
  return await Promise.all(names.map(async (name, index) => {
    const reply = await send("GET", `/failures/${index}`);
    const headers = ["retry-after", "x-should-retry", "www-authenticate"].flatMap((header) => {
      const value = reply.headers.get(header);
      return value === null ? [] : [` ${header}=${value}`];
    });
    return `${name} ${reply.status}${headers.join("")} ${await reply.text()}`;
  }));
}

/** Returns the codes of the errors that are no reply: of tools, for models, and of the configuration, for people. */
function otherErrors(): readonly string[] {
  const made = sourceFiles(["cli", "handlers", "lib"]).flatMap(({ text }) =>
    [...text.matchAll(/new (ConfigError|ProviderError|ToolError)\(\s*"([a-z_]+)"/g)].map(([, kind, code]) =>
      `${kind} ${code}`
    )
  );
  return [...new Set(made)].sort();
}
