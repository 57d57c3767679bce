<?php
use PHPUnit\Framework\TestCase;

final class BrokenTest extends TestCase
{
    public static function setUpBeforeClass(): void { throw new RuntimeException("class"); }
    public function testNever(): void { $this->assertTrue(true); }
}
