import { expect, test } from "vitest";
test("typed", () => { const one: number = 1; expect(one).toBe(1); });
