import type { ToolError } from "../../base/errors.ts";
import { fileError } from "./file_error.ts";
import type { OpenFile } from "./files.ts";
import { holdsPrivateKey, KEY_HEAD_BYTES } from "./sensitive_files.ts";
import type { Handle } from "./system_calls.ts";

/** Facts about a file whose handle was checked. `size` is in bytes. */
export interface OpenFileOptions {
  /** State of the handle */
  readonly stat: { readonly size: number | bigint; readonly dev: number | bigint; readonly ino: number | bigint };
  /** For messages */
  readonly path: string;
  /** The refusal of a file that holds a private key; undefined where such files may be read */
  readonly keyRefusal: ((path: string) => ToolError) | undefined;
}

/**
 * Returns an open file over a handle that was checked; closing it closes the handle. Nothing of a file that holds a private key is given,
 * whatever the file is called.
 */
export function openFile(handle: Handle, { stat, path, keyRefusal }: OpenFileOptions): OpenFile {
  const size = Number(stat.size);
  let isChecked = keyRefusal === undefined;
  const fill = async (buffer: Uint8Array, position: number): Promise<number> => {
    let filled = 0;
    while (filled < buffer.length) {
      const { bytesRead } = await handle.read(buffer, filled, buffer.length - filled, position + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return filled;
  };
  const readHead = async (): Promise<Uint8Array> => {
    const head = new Uint8Array(KEY_HEAD_BYTES);
    return head.subarray(0, await fill(head, 0));
  };
  return {
    size,
    isVersion(version) {
      // A stat without big integers rounds long numbers
      const [dev, ino] = version.split(":").map(Number);
      return dev === Number(stat.dev) && ino === Number(stat.ino);
    },
    async read(buffer, position) {
      try {
        const filled = await fill(buffer, position);
        if (isChecked || keyRefusal === undefined) return filled;
        // Most files are read from the beginning, with a buffer that holds all that is looked at
        const hasHead = position === 0 && filled >= Math.min(size, KEY_HEAD_BYTES);
        if (holdsPrivateKey(hasHead ? buffer.subarray(0, filled) : await readHead())) {
          buffer.fill(0);
          throw keyRefusal(path);
        }
        isChecked = true;
        return filled;
      } catch (error) {
        throw fileError("read", path, error);
      }
    },
    close: async () => await handle.close(),
  };
}
