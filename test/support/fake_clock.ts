/** The fake clock of the package's testing kit, by the name that the tests know. */
export { createFakeClock, type FakeClock } from "../../handlers/testing/fake_clock.ts";
