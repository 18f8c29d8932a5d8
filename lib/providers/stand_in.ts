import type { Provider } from "./provider.ts";

/** A provider that serves in place of another one: each of its streams begins with a notice that says so. */
export function asStandIn(
  provider: Provider,
  { model, reason }: { readonly model: string; readonly reason: string },
): Provider {
  const notice = {
    type: "notice",
    code: "provider_fallback",
    message: `The model "${model}" answers in place of the default one: ${reason}`,
    model,
  } as const;
  return {
    ...provider,
    async *stream(request, options) {
      let first = true;
      for await (const batch of provider.stream(request, options)) {
        yield first ? [notice, ...batch] : batch;
        first = false;
      }
    },
  };
}
