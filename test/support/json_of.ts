import { HttpError } from "../../lib/base/errors.ts";

/** Returns a reply that went well. @throws {HttpError} the error that any other one tells of */
export async function accepted(response: Response | Promise<Response>): Promise<Response> {
  const reply = await response;
  if (reply.status < 400) return reply;
  const { error: { code, message, ...rest } } = await jsonOf(reply);
  throw new HttpError(code, message, { status: reply.status, ...rest });
}

/** The JSON body of a reply, untyped: the assertions on it are its check. */
// deno-lint-ignore no-explicit-any
export async function jsonOf(response: Response | Promise<Response>): Promise<any> {
  return JSON.parse(await (await response).text());
}
