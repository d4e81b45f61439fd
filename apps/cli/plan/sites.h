// Parses and prints the sites of a plan: numbers of ranks, and links.
#pragma once

#include <string>
#include <vector>

#include "cli/outcome.h"
#include "deltawire/planner.h"

namespace deltawire::cli {

// "4", "4,8,64", or "4..1024": 4, 8, 16, ... and 1024. Failures (exit status 2) name the text.
std::vector<int> parse_ranks(const std::string& text);

// "100mbit", "100mbit,20ms" (latency, one way: s, ms or us), "100mbit/20mbit" (down/up), or
// "10mbit..10gbit,1ms": two per decade, and the last. Units as in tc: kbit, mbit, gbit.
std::vector<LinkRates> parse_links(const std::string& text);

// "100 Mbit/s", "100/20 Mbit/s, 5 ms": for tables. Down before up, as providers write it.
std::string link_name(const LinkRates& link);
std::string rate_name(double bytes_per_second);

}  // namespace deltawire::cli
