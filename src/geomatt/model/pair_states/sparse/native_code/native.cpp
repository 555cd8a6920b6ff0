// Triangles of neighbouring atoms, and sums over them.

#include <cstdint>

#include "vectors.hpp"

constexpr int64_t TOGETHER = 64;  // states that a thread does at a time

template <class F> static void each_state(int threads, int64_t states, F work) {
    parallel(threads, int((states + TOGETHER - 1) / TOGETHER), [&](int block) {
        const int64_t end = std::min(states, (block + 1) * TOGETHER);
        for (int64_t e = block * TOGETHER; e < end; ++e) work(e);
    });
}

// Sorted states (i, j, hop); those of atom a are first[a] to first[a + 1].
struct States {
    const int64_t *i, *j, *hop, *first, *key;
    int64_t atoms, span;

    // Every pair of states (i, m), (m, j) of state e.
    template <class F> void each_triangle(int64_t e, F found) const {
        for (int64_t left = first[i[e]]; left < first[i[e] + 1]; ++left) {
            const int64_t m = j[left];
            const int64_t wanted = (m * atoms + j[e]) * span + hop[e] - hop[left] + span / 2;
            const int64_t* end = key + first[m + 1];
            const int64_t* place = std::lower_bound(key + first[m], end, wanted);
            if (place != end && *place == wanted) found(left, place - key);
        }
    }
};

// out[e] = Σ u[left] v[right] over the terms of e; indices go through left_of and right_of where they are given.
template <class T>
static void sums(const T* u, const T* v, const int64_t* start, const int32_t* left, const int32_t* right,
                 const int32_t* left_of, const int32_t* right_of, int64_t states, int64_t width, int threads, T* out) {
    each_state(threads, states, [&](int64_t e) {
        T* to = out + e * width;
        std::fill(to, to + width, T(0));
        for (int64_t k = start[e]; k < start[e + 1]; ++k) {
            const T* a = u + (left_of ? left_of[left[k]] : left[k]) * width;
            const T* b = v + (right_of ? right_of[right[k]] : right[k]) * width;
            for (int64_t c = 0; c < width; ++c) to[c] += a[c] * b[c];
        }
    });
}

extern "C" {
void geomatt_count_triangles(const int64_t* i, const int64_t* j, const int64_t* hop, const int64_t* first,
                             const int64_t* key, int64_t states, int64_t atoms, int64_t span, int threads,
                             int64_t* counts) {
    const States all{i, j, hop, first, key, atoms, span};
    each_state(threads, states, [&](int64_t e) {
        int64_t count = 0;
        all.each_triangle(e, [&](int64_t, int64_t) { ++count; });
        counts[e + 1] = count;
    });
}

void geomatt_find_triangles(const int64_t* i, const int64_t* j, const int64_t* hop, const int64_t* first,
                            const int64_t* key, int64_t states, int64_t atoms, int64_t span, int threads,
                            const int64_t* start, int32_t* left, int32_t* right) {
    const States all{i, j, hop, first, key, atoms, span};
    each_state(threads, states, [&](int64_t e) {
        int64_t k = start[e];
        all.each_triangle(e, [&](int64_t a, int64_t b) { left[k] = int32_t(a), right[k++] = int32_t(b); });
    });
}

void geomatt_sums_f32(const float* u, const float* v, const int64_t* start, const int32_t* left,
                      const int32_t* right, const int32_t* left_of, const int32_t* right_of, int64_t states,
                      int64_t width, int threads, float* out) {
    sums(u, v, start, left, right, left_of, right_of, states, width, threads, out);
}

void geomatt_sums_f64(const double* u, const double* v, const int64_t* start, const int32_t* left,
                      const int32_t* right, const int32_t* left_of, const int32_t* right_of, int64_t states,
                      int64_t width, int threads, double* out) {
    sums(u, v, start, left, right, left_of, right_of, states, width, threads, out);
}
}
