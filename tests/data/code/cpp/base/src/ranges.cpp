#include "ranges.hpp"

#include <sstream>
#include <stdexcept>

std::vector<int> expand(const std::string &text) {
    std::vector<int> numbers;
    std::istringstream parts(text + ",");
    for (std::string part; std::getline(parts, part, ',');) {
        const auto dash = part.find('-');
        const int first = std::stoi(part.substr(0, dash));
        const int last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
        for (int number = first; number <= last; number++) numbers.push_back(number);
    }
    return numbers;
}
