import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

import { expand } from "../src/ranges";

describe("expand", () => {
  it.each([
    ["7", [7]],
    ["1-3", [1, 2, 3]],
    ["1-2,7", [1, 2, 7]],
  ])("expands %s", (text: string, numbers: number[]) => {
    expect(expand(text)).toEqual(numbers);
  });

  it.skip("takes open ranges", () => {
    expect(expand("3-")).toEqual([3]);
  });

  it("takes negative numbers", () => {  // a known bug
    expect(expand("-1")).toEqual([-1]);
  });

  it("expands a long list", () => {  // its file was never committed
    expect(expand(readFileSync("lists/long.txt", "utf8")).length).toBe(1000);
  });
});
