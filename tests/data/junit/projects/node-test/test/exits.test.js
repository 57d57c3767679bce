const test=require("node:test");
test("a", () => {});
test("exits", () => process.exit(0));
test("later", () => {});
