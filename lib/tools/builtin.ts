import { readFile } from "./files/read_file.ts";
import type { Tool } from "./runtime/tool.ts";

/** Every built-in tool, by family. */
export const BUILTIN_TOOLS: readonly Tool[] = [readFile];
