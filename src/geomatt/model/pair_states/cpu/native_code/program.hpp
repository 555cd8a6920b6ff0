// What Python hands over: sizes, weights and where results go. `engine.py` has the same layouts.

#pragma once

#include "products.hpp"

// The weights of a network, or the gradient with respect to them. T rounds, C channels, L functions.
struct Weights {
    float *g, *h, *e;  // (E, C)
    float* k;          // (C, L)
    float* ab;         // (T, 2C, C)
    float *w1, *b1;    // (T, 2C, 2C), (T, 2C)
    float *w2, *b2;    // (T, C, 2C), (T, C)
    float *v1, *c1;    // (2C, 2C), (2C): the readout
    float *v2, *c2;    // (C, 2C), (C)
    float *v3, *c3;    // (C), (1)
};

struct Program {
    int32_t atoms, structures, channels, rounds, functions, elements, threads;
    int32_t keep;    // 1 if a gradient will be asked for: all sweeps leave what it needs
    int32_t forces;  // 1 if forces are wanted
    float sharpness, decay, scale;  // of the basis; s, or 0 if it is N^(−1/2)
    float radius;                   // of the envelope; 0 for none
    const int64_t *numbers, *known;  // (B, N), zero for padding; atomic numbers of the elements (E)
    const float *positions, *mu;     // (B, N, 3), (L)
    const float* ceiling;            // t of all U units, then w of them; null without one
    const Weights *weights, *by_weights;
    float *packed, *space;           // `Panels`; work space for one structure, or as many as are kept
    float *atomic, *found;           // energies (B, N) and forces (B, N, 3), zero at first
    const float *by_energy, *by_forces;  // ∂loss/∂E (B) and ∂loss/∂F (B, N, 3)

    long units() const { return (2L * rounds + 3) * channels; }
    int basis() const { return (functions + WIDE - 1) / WIDE * WIDE; }
};

static_assert(sizeof(Program) == 160 && sizeof(Weights) == 120, "the layouts must agree");

// The weights in panels. "Up" leads from states to what is made of them, "down" from adjoints to adjoints.
struct Panels {
    float* base;
    const long square;
    const int rounds, basis;

    explicit Panels(const Program& p)
        : base(p.packed), square(long(p.channels) * p.channels), rounds(p.rounds), basis(p.basis()) {}

    float* up_ab(int t) const { return base + 16 * square * t; }        // X → A, B
    float* up_h(int t) const { return up_ab(t) + 2 * square; }          // X, P → H
    float* up_x(int t) const { return up_ab(t) + 6 * square; }          // U → X
    float* down_u(int t) const { return up_ab(t) + 8 * square; }        // X → U
    float* down_h(int t) const { return up_ab(t) + 10 * square; }       // H → X, P
    float* down_ab(int t) const { return up_ab(t) + 14 * square; }      // A, B → X
    float* up_1() const { return up_ab(rounds); }
    float* up_2() const { return up_1() + 4 * square; }
    float* down_2() const { return up_1() + 6 * square; }
    float* down_1() const { return up_1() + 8 * square; }
    float* k() const { return up_1() + 12 * square; }
    long size(int channels) const { return 16 * square * rounds + 12 * square + long(basis) * channels; }

    void fill_round(const Program& p, int t) const {
        const int c = p.channels;
        const float *ab = p.weights->ab + 2 * square * t, *w1 = p.weights->w1 + 4 * square * t;
        const float* w2 = p.weights->w2 + 2 * square * t;
        pack(up_ab(t), ab, c, 2 * c, 1, c);
        pack(up_h(t), w1, 2 * c, 2 * c, 1, 2 * c);
        pack(up_x(t), w2, 2 * c, c, 1, 2 * c);
        pack(down_u(t), w2, c, 2 * c, 2 * c, 1);
        pack(down_h(t), w1, 2 * c, 2 * c, 2 * c, 1);
        pack(down_ab(t), ab, 2 * c, c, c, 1);
    }
    void fill_readout(const Program& p) const {
        const int c = p.channels;
        pack(up_1(), p.weights->v1, 2 * c, 2 * c, 1, 2 * c);
        pack(up_2(), p.weights->v2, 2 * c, c, 1, 2 * c);
        pack(down_2(), p.weights->v2, c, 2 * c, 2 * c, 1);
        pack(down_1(), p.weights->v1, 2 * c, 2 * c, 2 * c, 1);
        std::fill_n(k(), long(basis) * c, 0.0f);
        for (int at = 0; at < c; at += PANEL)
            for (int l = 0; l < p.functions; ++l)
                for (int f = 0; f < PANEL; ++f)
                    k()[(at / PANEL * basis + l) * PANEL + f] = p.weights->k[(at + f) * p.functions + l];
    }
};
