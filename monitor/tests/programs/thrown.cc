// Threads that throw through frames of several depths, with destructors on the way; prints sums, exits 4.
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Guard {
    int &count;
    ~Guard() { count++; }
};

static int deep(int depth, int value) {
    int count = 0;
    {
        Guard guard{count};
        if (depth == 0) {
            if (value % 3 == 0) throw std::runtime_error(std::to_string(value));
            if (value % 3 == 1) throw value;
            return value;
        }
    }
    return deep(depth - 1, value) + count;
}

int main(int count, char **words) {
    int rounds = count > 1 ? std::stoi(words[1]) : 3000;
    std::vector<std::thread> threads;
    long sums[3] = {};
    for (int k = 0; k < 3; k++)
        threads.emplace_back([&, k] {
            std::map<std::string, int> texts;
            for (int i = 0; i < rounds; i++) try {
                    sums[k] += deep(i % 20, i + k);
                } catch (const std::runtime_error &error) {
                    texts[error.what()]++;
                    sums[k] += 2;
                } catch (int value) {
                    sums[k] ^= value;
                }
            sums[k] += texts.size();
        });
    for (auto &thread : threads) thread.join();
    std::printf("%ld %ld %ld\n", sums[0], sums[1], sums[2]);
    return 4;
}
