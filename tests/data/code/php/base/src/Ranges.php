<?php

namespace Ranges;

final class Ranges
{
    /**
     * The numbers of "1-3,7": 1, 2, 3, 7.
     *
     * @return int[]
     */
    public static function expand(string $text): array
    {
        $numbers = [];
        foreach (explode(',', $text) as $part) {
            if (!preg_match('/^(\d+)(?:-(\d+))?$/', $part, $ends)) {
                throw new \InvalidArgumentException("no range: $part");
            }
            $last = (int) ($ends[2] ?? $ends[1]);
            for ($number = (int) $ends[1]; $number <= $last; $number++) {
                $numbers[] = $number;
            }
        }
        return $numbers;
    }
}
