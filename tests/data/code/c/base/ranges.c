#include "ranges.h"

#include <stdlib.h>

/* The numbers of "1-3,7": 1, 2, 3, 7; their count, or -1 for what is no range. */
int expand(const char *text, int *numbers, int room) {
    int count = 0;
    for (;;) {
        char *end;
        long first = strtol(text, &end, 10), last = first;
        if (end == text) return -1;
        if (*end == '-') {
            text = end + 1;
            last = strtol(text, &end, 10);
            if (end == text) return -1;
        }
        for (long number = first; number <= last && count < room; number++) numbers[count++] = (int)number;
        if (*end == '\0') return count;
        if (*end != ',') return -1;
        text = end + 1;
    }
}
