import type { ProviderLayer } from "../provider.ts";
import type { ProviderSettings } from "../provider_settings.ts";

/** Families of models that see, by the maker's own names (platform.openai.com, docs.anthropic.com, ai.google.dev). */
const OPENAI = /^(?:chatgpt-4o|gpt-4o|gpt-4\.[15]|gpt-4-turbo|gpt-5|o1(?!-mini|-preview)|o3(?!-mini)|o4-mini)/;
const OPENAI_BLIND = /audio|realtime|search|transcribe|tts/;
const ANTHROPIC = /^claude-(?!2|instant|v\d)/;
const GOOGLE = /^gemini-/;

/**
 * Makes the layer by which a model that does not see is not sent pictures of tool results, and is told of them in words.
 *
 * `auto` knows the models of OpenAI and Anthropic, and of these and Google at OpenRouter, by their names. All others do not see.
 */
export function withVision({ kind, vision }: Pick<ProviderSettings, "kind" | "vision">): ProviderLayer {
  const sees = (model: string) => vision === "on" || (vision === "auto" && isKnownToSee(kind, model));
  return (provider) => ({
    sees,
    stream(request, options) {
      if (request.pictures === undefined || sees(request.model)) return provider.stream(request, options);
      return provider.stream({ ...request, pictures: undefined }, options);
    },
  });
}

function isKnownToSee(kind: string, model: string): boolean {
  switch (kind) {
    case "openai":
      return isOpenAi(model);
    case "anthropic":
      return ANTHROPIC.test(model);
    case "openrouter": {
      const [maker, name = ""] = model.split("/");
      if (maker === "openai") return isOpenAi(name);
      return (maker === "anthropic" && ANTHROPIC.test(name)) || (maker === "google" && GOOGLE.test(name));
    }
    default:
      return false;
  }
}

function isOpenAi(model: string): boolean {
  return OPENAI.test(model) && !OPENAI_BLIND.test(model);
}
