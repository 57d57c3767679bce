<?php

namespace Ranges\Tests;

use PHPUnit\Framework\TestCase;
use Ranges\Ranges;

final class RangesTest extends TestCase
{
    /** @dataProvider lists */
    public function testLists(string $text, array $numbers): void
    {
        $this->assertSame($numbers, Ranges::expand($text));
    }

    public static function lists(): array
    {
        return ['number' => ['7', [7]], 'range' => ['1-3', [1, 2, 3]], 'both' => ['1-2,7', [1, 2, 7]]];
    }

    public function testOpenRange(): void
    {
        $this->markTestSkipped('not decided on');
    }

    /** A known bug: it throws. */
    public function testNegativeNumber(): void
    {
        $this->assertSame([-1], Ranges::expand('-1'));
    }

    /** Its file was never committed. */
    public function testLongList(): void
    {
        $this->assertFileExists(__DIR__ . '/lists/long.txt');
    }
}
