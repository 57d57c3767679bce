"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const { describe, it } = require("node:test");

const { expand } = require("../src/ranges.js");

describe("expand", () => {
  for (const [text, numbers] of [["7", [7]], ["1-3", [1, 2, 3]], ["1-2,7", [1, 2, 7]]]) {
    it(`expands ${text}`, () => assert.deepStrictEqual(expand(text), numbers));
  }

  it("takes open ranges", { skip: "they are not decided on" }, () => {
    assert.deepStrictEqual(expand("3-"), [3]);
  });

  it("takes negative numbers", { todo: "a known bug" }, () => {
    assert.deepStrictEqual(expand("-1"), [-1]);
  });

  it("drops duplicates", () => {  // a known bug, too
    assert.deepStrictEqual(expand("1,1"), [1]);
  });

  it("expands a long list", () => {  // its file was never committed
    assert.strictEqual(expand(fs.readFileSync("lists/long.txt", "utf8")).length, 1000);
  });
});
