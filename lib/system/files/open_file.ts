import { fileError } from "./file_error.ts";
import type { OpenFile } from "./files.ts";
import type { Handle } from "./system_calls.ts";

/** An open file over a handle that was checked; closing it closes the handle. */
export function openFile(handle: Handle, options: { readonly size: number; readonly path: string }): OpenFile {
  return {
    size: options.size,
    async read(buffer, position) {
      let filled = 0;
      try {
        while (filled < buffer.length) {
          const { bytesRead } = await handle.read(buffer, filled, buffer.length - filled, position + filled);
          if (bytesRead === 0) break;
          filled += bytesRead;
        }
      } catch (error) {
        throw fileError("read", options.path, error);
      }
      return filled;
    },
    close: async () => await handle.close(),
  };
}
