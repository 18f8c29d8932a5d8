/** The JSON body of a reply, untyped: the assertions on it are its check. */
// deno-lint-ignore no-explicit-any
export async function jsonOf(response: Response | Promise<Response>): Promise<any> {
  return JSON.parse(await (await response).text());
}
