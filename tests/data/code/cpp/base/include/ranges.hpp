#pragma once

#include <string>
#include <vector>

/// The numbers of "1-3,7": 1, 2, 3, 7.
std::vector<int> expand(const std::string &text);
