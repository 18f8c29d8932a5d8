import process from "node:process";
import { answerJob } from "../../../lib/system/process/workers.ts";

// Runs as a thread, for the tests of workers
await answerJob((input, { stopped }) => {
  switch (input) {
    case "environment":
      return Object.keys(process.env);
    case "busy":
      while (!stopped());
      return "stopped";
    case "heap": {
      const kept: number[][] = [];
      for (;;) kept.push(Array.from({ length: 1000 }, (_, i) => i * Math.PI));
    }
    case "throw":
      throw new Error("broken on purpose");
    default:
      return { got: input };
  }
});
