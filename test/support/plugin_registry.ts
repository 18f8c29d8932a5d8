import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { signedText } from "../../lib/extensions/plugins/registry.ts";
import { readPackage } from "../../lib/extensions/plugins/plugin_package.ts";
import { type SampleManifest, samplePackage, sha256 } from "./plugin_package.ts";

/** Publisher of a test, with the public key as an index has it. */
export interface Publisher {
  readonly key: string;
  readonly privateKey: KeyObject;
}

/** Makes a publisher with a new key. */
export function createPublisher(): Publisher {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const der = publicKey.export({ format: "der", type: "spki" });
  return { key: Buffer.from(der.subarray(-32)).toString("base64"), privateKey };
}

/** Edition of a registry: the packages by their manifests, and what the index says about them. */
export interface Edition {
  readonly serial?: number;
  readonly expiresAt?: string;
  readonly packages: readonly SampleManifest[];
  /** Undefined: the versions are not signed */
  readonly publisher?: Publisher | undefined;
  /** Fields of a version in place of the right ones */
  readonly lies?: Readonly<Record<string, unknown>>;
  /** Changes the index before it is written */
  readonly change?: (index: Record<string, unknown>) => unknown;
}

/** Writes a registry into a folder. */
export function writeRegistry(folder: string, edition: Edition): void {
  const { serial = 1, expiresAt = "2030-01-01T00:00:00Z", packages, publisher, lies = {}, change } = edition;
  mkdirSync(folder, { recursive: true });
  const plugins = new Map<string, Record<string, unknown>[]>();
  for (const fields of packages) {
    const bytes = samplePackage(fields);
    const { manifest } = readPackage(bytes);
    const { id, version, kind, capabilities } = manifest;
    const url = `${id}-${version}.tar`;
    writeFileSync(join(folder, url), bytes);
    const entry = { version, kind, url, size: bytes.length, sha256: sha256(bytes), capabilities };
    const text = signedText(entry, { id, index: { serial, expires_at: expiresAt } });
    const signature = publisher && {
      key: publisher.key,
      value: sign(null, text, publisher.privateKey).toString("base64"),
    };
    plugins.set(id, [...plugins.get(id) ?? [], { ...entry, ...(signature && { signature }), ...lies }]);
  }
  const index = {
    format: "postern-plugins-1",
    serial,
    expires_at: expiresAt,
    plugins: [...plugins].map(([id, versions]) => ({ id, description: `Plugin ${id}`, versions })),
  };
  writeFileSync(join(folder, "index.json"), JSON.stringify(change?.(index) ?? index));
}
