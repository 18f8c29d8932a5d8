import { open } from "node:fs/promises";
import { arch, cpus, machine, platform, totalmem } from "node:os";
import { join } from "node:path";

/** Description of the machine that the gateway runs on, by its own account. Undefined fields are not told. */
export interface HostBoard {
  readonly model: string | undefined;
  readonly vendor: string | undefined;
  /** The device tree's, most specific first, such as `raspberrypi,4-model-b` */
  readonly compatible: readonly string[];
  readonly firmware: string | undefined;
  readonly platform: string;
  readonly architecture: string;
  readonly cpu: { readonly model: string | undefined; readonly cores: number };
  readonly memoryBytes: number;
}

const MAX_BYTES = 4096;
const MAX_TEXT = 200;
/** Texts that makers leave in a field that nobody filled in. */
const PLACEHOLDER =
  /^(to be filled by o\.?e\.?m\.?|default string|system (product name|manufacturer)|not (specified|applicable)|none|n\/a|unknown)?$/i;

/**
 * Reads the device tree, or the DMI table where there is none, and counts processors and memory. Serial numbers are left alone, and
 * nothing is run.
 * @param root stands for `/`. Default: `/`
 * Source: Devicetree Specification section 2.3; Linux Documentation/ABI/testing/sysfs-class-dmi
 */
export async function readHostBoard(root = "/"): Promise<HostBoard> {
  const read = async (...names: readonly string[]): Promise<string | undefined> => {
    for (const name of names) {
      const text = await readStart(join(root, name));
      if (text !== undefined) return text;
    }
    return undefined;
  };
  const tree = await read("proc/device-tree/model", "sys/firmware/devicetree/base/model");
  const compatible = await read("proc/device-tree/compatible", "sys/firmware/devicetree/base/compatible");
  const dmi = async (name: string) => shown(await read(`sys/class/dmi/id/${name}`));
  const processors = cpus();
  return {
    model: shown(tree) ?? await dmi("product_name") ?? await dmi("board_name"),
    vendor: await dmi("sys_vendor") ?? await dmi("board_vendor"),
    compatible: (compatible ?? "").split("\0").map(shown).filter((text) => text !== undefined).slice(0, 16),
    firmware: await dmi("bios_version"),
    platform: platform(),
    architecture: machine() || arch(),
    cpu: { model: shown(processors[0]?.model), cores: processors.length },
    memoryBytes: totalmem(),
  };
}

async function readStart(path: string): Promise<string | undefined> {
  try {
    const file = await open(path);
    try {
      const { bytesRead, buffer } = await file.read(new Uint8Array(MAX_BYTES), 0, MAX_BYTES, 0);
      return new TextDecoder().decode(buffer.subarray(0, bytesRead));
    } finally {
      await file.close();
    }
  } catch {
    // A machine has the one, the other, or neither; in a container often neither
    return undefined;
  }
}

/** Returns the first line, printable. Undefined for an empty text and for a placeholder. */
function shown(text: string | undefined): string | undefined {
  const line = text?.split("\0")[0]?.replace(/[^\x20-\x7e]/g, "").trim().slice(0, MAX_TEXT) ?? "";
  return PLACEHOLDER.test(line) ? undefined : line;
}
