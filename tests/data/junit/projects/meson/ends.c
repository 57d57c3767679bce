#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ends as its words say. */
int main(int words, char **word) {
    const char *end = words > 1 ? word[1] : "0";
    if (strcmp(end, "tap") == 0) {
        puts("1..3\nok 1 - one\nnot ok 2 - two\nok 3 - three # SKIP not today");
        fflush(stdout);
        if (words == 2) return 0;
    }
    if (strcmp(word[words - 1], "sleep") == 0) sleep(60);
    if (strcmp(end, "crash") == 0) abort();
    return atoi(end);
}
