#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    int how = count > 1 ? atoi(words[1]) : 0;
    printf("control \x1b[31mred\x1b[0m ]]> & <b>\n");
    fflush(stdout);
    if (how == 2) putchar(0);
    if (how == 6) abort();
    if (how == 9) sleep(60);
    return how;
}
