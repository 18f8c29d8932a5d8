import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import { fetchFiles, type FetchFilesServices } from "../../system/git/fetch_files.ts";
import type { UrlPolicy } from "../../system/net/url_policy.ts";
import type { PackageFile } from "../package_folder.ts";
import { MAX_SKILL_FILES, MAX_SKILL_FOLDER_BYTES } from "./read_skill.ts";
import { ExtensionError, type ExtensionErrorCode } from "../extension_error.ts";
import { checkSkillName, chooseFolder, filesOfTar, skillAmong } from "./skill_sources.ts";

/** Services that fetching a skill works with. */
export interface FetchSkillServices extends FetchFilesServices {
  readonly urls: Pick<UrlPolicy, "check">;
  /** The newest configuration. */
  readonly config: () => Pick<Config, "url_access">;
}

/** Skill of a git repository. */
export interface FetchedSkill {
  readonly files: readonly PackageFile[];
  /** Hash of the commit */
  readonly commit: string;
}

/** URLs that git and the URL policy read alike: no user, backslash, blank or query, and no dot at the end of the host */
const PLAIN_URL =
  /^https?:\/\/(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::\d{1,5})?(?:\/[A-Za-z0-9._~%+,;=@!$&'()*/-]*)?$/i;

const URL_REFUSED =
  'only plain http and https addresses are fetched, such as "https://example.com/skills.git#v1.0"; clone any other ' +
  "repository yourself, and name its folder as the source";
/** Addresses over ssh: as a URL, and as git's `user@host:path` */
const SSH = /^(?:(?:git\+)?ssh(?:\+git)?:\/\/|[\w.-]+@[\w.-]+:)/i;
const SSH_REFUSED =
  "git over ssh would use your keys, and Postern takes none of them; use the https address of the repository, or clone " +
  "it yourself with git clone and name its folder as the source";

/**
 * Fetches a skill of a git repository over http or https, without credentials.
 * @param source URL, with `#` and a branch, tag or commit where it is not the default branch
 * @throws {ExtensionError} `skill_invalid`, `skill_too_large`, `skill_source_failed`; {CancelError} when the signal aborts
 */
export async function fetchSkill(
  source: string,
  { name, signal }: { readonly name: string; readonly signal: AbortSignal },
  { urls, config, ...services }: FetchSkillServices,
): Promise<FetchedSkill> {
  checkSkillName(name);
  const [url = "", ...rest] = source.split("#");
  if (!PLAIN_URL.test(url) || rest.length > 1) {
    const shown = JSON.stringify(source.replace(/\/\/[^/@]*@/, "//***@").slice(0, 200));
    throw new ExtensionError("skill_invalid", `Cannot fetch ${shown}: ${SSH.test(url) ? SSH_REFUSED : URL_REFUSED}`);
  }
  try {
    const { commit, tar } = await fetchFiles({
      remote: await urls.check(url, config().url_access, { signal }),
      ref: rest[0],
      choose: (paths) => chooseFolder(paths, name),
      maxBytes: MAX_SKILL_FOLDER_BYTES,
      maxFiles: MAX_SKILL_FILES,
      signal,
    }, services);
    return { commit, files: await skillAmong(filesOfTar(tar), name) };
  } catch (cause) {
    if (!(cause instanceof ToolError)) throw cause;
    throw new ExtensionError(codeOf(cause), `Cannot fetch the skill "${name}": ${cause.message}`, { cause });
  }
}

function codeOf({ code }: ToolError): ExtensionErrorCode {
  if (code === "git_too_large") return "skill_too_large";
  if (code === "git_ref") return "skill_invalid";
  // The rules of [url_access] do not let it be reached
  return code.startsWith("url_") && code !== "url_unresolved" ? "skill_conflict" : "skill_source_failed";
}
