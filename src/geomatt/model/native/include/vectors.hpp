// Vectors and threads.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#ifdef __AVX512F__
constexpr int WIDE = 16;
#else
constexpr int WIDE = 8;
#endif

template <int L> struct Vector;
template <> struct Vector<1> { typedef float V; };
template <> struct Vector<8> { typedef float V __attribute__((vector_size(32))); };
template <> struct Vector<16> { typedef float V __attribute__((vector_size(64))); };

template <int L> struct Lanes {
    using V = typename Vector<L>::V;
    static V load(const float* p) {
        V v;
        std::memcpy(&v, p, sizeof v);  // an unaligned load
        return v;
    }
    // One that compilers must not repeat for each of its uses.
    static V load_once(const float* p) {
        V v = load(p);
#if defined(__AVX512F__)
        asm("" : "+v"(v));
#elif defined(__AVX__)
        asm("" : "+x"(v));
#endif
        return v;
    }
    static void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
    static float sum(V v) {
        float parts[L], total = 0;
        std::memcpy(parts, &v, sizeof v);
        for (float part : parts) total += part;
        return total;
    }
    // True if an entry of x is larger than that of y.
    static bool any_above(V x, V y) {
        const auto above = x > y;
        int parts[L], found = 0;
        std::memcpy(parts, &above, sizeof parts);
        for (int part : parts) found |= part;
        return found;
    }
};

// With OpenMP the threads are torch's own, which would otherwise keep the cores busy waiting for work.
template <class F> static void parallel(int threads, int count, F work) {
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int i = 0; i < count; ++i) work(i);
#else
    std::atomic<int> next{0};
    auto run = [&] { for (int i; (i = next++) < count;) work(i); };
    std::vector<std::thread> others;
    try {
        for (int t = 1; t < std::min(threads, count); ++t) others.emplace_back(run);
    } catch (const std::system_error&) {  // no more threads are to be had: those there are do it all
    }
    run();
    for (auto& thread : others) thread.join();
#endif
}

// `work` with vectors as wide as the processor's where they fill `width`, else narrower ones or none.
template <class F> static void by_lanes(long width, F work) {
    if (width % WIDE == 0) return work(std::integral_constant<int, WIDE>());
    if (width % 8 == 0) return work(std::integral_constant<int, 8>());
    work(std::integral_constant<int, 1>());
}

// A thread's own space. It is kept: fresh memory would cost more than the products.
static float* own_space(size_t wanted) {
    thread_local std::vector<float> space;
    if (space.size() < wanted) std::vector<float>(wanted).swap(space);
    return space.data();
}
