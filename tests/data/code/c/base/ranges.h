#ifndef RANGES_H
#define RANGES_H

int expand(const char *text, int *numbers, int room);

#endif
