/**
 * The testing kit of the package, `postern/testing`: a gateway without sockets, folders and time.
 * @module
 */
export type { Clock, TimeoutSignal, Timer } from "../../lib/base/clock.ts";
export { createFakeClock, type FakeClock } from "./fake_clock.ts";
export {
  type PlayedScript,
  type Script,
  type ScriptedProgramProvider,
  scriptedProvider,
  type ScriptedProviderOptions,
  type ScriptedToolCall,
  type ScriptedTurn,
} from "./scripted_provider.ts";
export {
  connect,
  createTestGateway,
  type TestCredentials,
  type TestFrame,
  type TestGateway,
  type TestGatewayOptions,
  type TestRequestInit,
  type TestScope,
  type TestSocket,
} from "./test_gateway.ts";
