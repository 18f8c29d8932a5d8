import { readFile } from "node:fs/promises";

/**
 * Returns the text of a file of Postern's own. Where its modules come from a server, as Deno loads them from JSR, the file comes from there as
 * a module of text, and stays where Deno keeps modules.
 * @param url file beside a module, by `import.meta.url`
 * @throws {Error} there is no such file
 */
export async function readOwnFile(url: URL): Promise<string> {
  if (url.protocol === "file:") return await readFile(url, "utf8");
  const module: unknown = await import(url.href, { with: { type: "text" } });
  return (module as { readonly default: string }).default; // as each module of text
}
