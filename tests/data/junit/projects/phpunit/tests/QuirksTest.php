<?php
namespace Quirks\Tests;

use PHPUnit\Framework\TestCase;

final class QuirksTest extends TestCase
{
    public function testPass(): void { $this->assertTrue(true); }
    public function testFail(): void { $this->fail("control \x1b[31mred\x1b[0m \x00 ]]> & <b>"); }
    public function testError(): void { throw new \RuntimeException("an exception is an error"); }
    public function testSkip(): void { $this->markTestSkipped("not today"); }
    public function testIncomplete(): void { $this->markTestIncomplete("later"); }
    public function testRisky(): void { }
    public function testWarning(): void { $this->assertTrue(true); trigger_error("warned", E_USER_WARNING); }

    /** @dataProvider rows */
    public function testRows(int $a): void { $this->assertSame(1, $a); }
    public static function rows(): array { return ["with name" => [1], [1], "two" => [2]]; }
}
